package order

import (
	"cmp"
	"errors"
	"slices"

	"orderd/internal/db"
	"orderd/internal/idem"
	"orderd/internal/msg"
)

// received is the command's row in the inbox, without its outcome.
func received(c msg.Command) *msg.Received {
	return &msg.Received{Source: c.Source, MessageID: c.ID, PayloadHash: c.Hash, Kind: c.Type}
}

// causeOf is what an event says that a received message caused.
func causeOf(r *msg.Received) string { return r.Source + " " + r.MessageID }

// errAnswered says that a twin of the command was refused while this one waited.
var errAnswered = errors.New("order: the command was answered meanwhile")

// loadReceivedTx finds which of the messages are in the inbox by now, and the orders that they stand for.
func loadReceivedTx(tx *db.Tx, ps []*placing) error {
	var ids []msg.ID
	for _, p := range ps {
		if p.Received != nil && !p.received {
			ids = append(ids, msg.ID{Source: p.Received.Source, MessageID: p.Received.MessageID})
		}
	}
	if len(ids) == 0 {
		return nil
	}
	known, err := msg.Known(tx.DB, ids)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if p.Received == nil || p.received {
			continue
		}
		switch row, ok := known[msg.ID{Source: p.Received.Source, MessageID: p.Received.MessageID}]; {
		case !ok:
		case row.PayloadHash != p.Received.PayloadHash:
			p.err = errMessageConflict("this message id came before with another content")
		case row.OrderNo == "":
			p.err = errAnswered
		default:
			p.orderNo, p.received, p.fresh, p.door = row.OrderNo, true, false, idem.GuardInbox
		}
	}
	return nil
}

// receivedRows are the inbox rows of the messages that create orders, in the order in which all insert them.
func receivedRows(ps []*placing, now db.Time) []msg.Received {
	var rows []msg.Received
	for _, p := range ps {
		if p.Received != nil && !p.received {
			rows = append(rows, applies(*p.Received, p.orderNo, now))
		}
	}
	slices.SortFunc(rows, func(a, b msg.Received) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.MessageID, b.MessageID))
	})
	return rows
}

func (c cause) receivedRows(orderNo string, now db.Time) []msg.Received {
	if c.received == nil {
		return nil
	}
	return []msg.Received{applies(*c.received, orderNo, now)}
}

func applies(r msg.Received, orderNo string, now db.Time) msg.Received {
	r.OrderNo, r.Outcome, r.ReceivedAt = orderNo, applied, now
	return r
}
