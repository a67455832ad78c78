package order

import (
	"context"
	"slices"
	"strings"
	"time"

	"orderd/internal/db"
	"orderd/internal/failpoint"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
)

// stage is one guarded step of placing an order, for those that stand at from.
type stage struct {
	from fsm.State
	run  func(s *Service, tx *db.Tx, t *tail, ps []*placing) error
}

// stages are the local ones: no foreign call lies between them, so they may share a transaction.
var stages = []stage{
	{fsm.None, (*Service).createTx},
	{fsm.Created, (*Service).reserveTx},
	{fsm.Reserved, (*Service).openPaymentTx},
}

// runStages is the batch function of placing: it brings each order as far as it gets without the gateway. Dying anywhere
// in it leaves each order at the last stage that was committed, and a resubmission goes on from there.
func (s *Service) runStages(ctx context.Context, ps []*placing) error {
	if s.cfg.StageCommit == Together {
		return s.runInOneTx(ctx, ps, stages)
	}
	for i := range stages {
		todo := ps
		if i > 0 { // only those that stand there: who was refused, or waits for a twin, is done for this time
			todo = at(stages[i].from, ps)
		}
		if len(todo) == 0 {
			continue
		}
		if err := s.runInOneTx(ctx, todo, stages[i:i+1]); err != nil {
			// An item that is run again by itself may have been created by the batch that failed.
			created := i > 0 || slices.ContainsFunc(todo, func(p *placing) bool { return p.created })
			if created && fault.Is(err, "unavailable") { // not "nothing was changed"
				err = fault.Busy("unavailable", "the database cannot go on with this order now; what was stored stays, send the same request again", time.Second, err)
			}
			return err
		}
	}
	return nil
}

func (s *Service) runInOneTx(ctx context.Context, ps []*placing, stages []stage) error {
	err := s.DB.InTx(ctx, "place", func(tx *db.Tx) error {
		if err := s.loadTx(tx, ps); err != nil {
			return err
		}
		t := &tail{}
		for _, st := range stages {
			if todo := at(st.from, ps); len(todo) > 0 {
				if err := st.run(s, tx, t, todo); err != nil {
					return err
				}
				failpoint.Here("place.stage")
			}
		}
		return s.flushTx(tx, t)
	})
	if err != nil {
		return err
	}
	for _, p := range ps {
		p.created, p.opened = p.created || p.creating, p.opened || p.opening
	}
	return nil
}

// at returns those that stand at a status and have not been refused.
func at(from fsm.State, ps []*placing) []*placing {
	var todo []*placing
	for _, p := range ps {
		if p.err == nil && !p.twin && p.status() == from {
			todo = append(todo, p)
		}
	}
	return todo
}

func (p *placing) status() fsm.State {
	if p.order == nil {
		return fsm.None
	}
	return p.order.Status
}

// loadTx reads what is known already: the orders, and the orders that keys stand for. One read for the whole batch, and
// inside the transaction, so that a run after a lost race sees what the winner wrote. The first run does not look for
// orders that are presumed to be absent.
func (s *Service) loadTx(tx *db.Tx, ps []*placing) error {
	var pairs [][2]string
	for _, p := range ps {
		p.runs++
		p.order, p.creating, p.opening, p.twin, p.err = nil, false, false, false, nil
		if p.Key != "" && !p.bound {
			pairs = append(pairs, [2]string{p.UserID, p.Key})
		}
	}
	keys, err := idem.KeysTx(tx, pairs)
	if err != nil {
		return err
	}
	for i := range keys {
		for _, p := range ps {
			if p.UserID == keys[i].UserID && p.Key == keys[i].Key && !p.bound {
				p.err = p.bind(&keys[i])
			}
		}
	}
	if err := loadReceivedTx(tx, ps); err != nil {
		return err
	}
	var orderNos []string
	seen := map[string]bool{}
	for _, p := range ps {
		if p.err != nil {
			continue
		}
		key := "\x00" + p.UserID + "\x00" + p.Key
		p.twin = seen[p.orderNo] || p.Key != "" && seen[key]
		seen[p.orderNo], seen[key] = true, true
		if p.Received != nil {
			p.twin = p.twin || seen["\x01"+causeOf(p.Received)]
			seen["\x01"+causeOf(p.Received)] = true
		}
		if !p.twin && !p.presumed() {
			orderNos = append(orderNos, p.orderNo)
		}
	}
	orders, err := readOrders(tx.DB, orderNos)
	if err != nil {
		return err
	}
	for _, o := range orders {
		for _, p := range ps {
			if p.orderNo == o.OrderNo && p.err == nil && !p.twin {
				p.found(o)
			}
		}
	}
	return s.bindLateTx(tx, ps)
}

// bindLateTx binds keys that came with the number of an order that exists, so that they stand for it from now on.
func (s *Service) bindLateTx(tx *db.Tx, ps []*placing) error {
	var late []*placing
	for _, p := range ps {
		if p.order != nil && p.err == nil && p.Key != "" && !p.bound {
			late = append(late, p)
		}
	}
	return idem.BindTx(tx, keyRows(late))
}

func keyRows(ps []*placing) []idem.Key {
	var rows []idem.Key
	for _, p := range ps {
		if p.Key != "" && !p.bound {
			rows = append(rows, idem.Key{UserID: p.UserID, Key: p.Key, OrderNo: p.orderNo, Fingerprint: p.fingerprint})
		}
	}
	return rows
}

// stored returns the order_nos of those orders that have a row already, sorted, as every transaction updates them. The
// others get theirs at the end of the transaction that creates them.
func stored(ps []*placing) []string {
	var nos []string
	for _, p := range ps {
		if !p.creating {
			nos = append(nos, p.orderNo)
		}
	}
	slices.SortFunc(nos, strings.Compare)
	return nos
}
