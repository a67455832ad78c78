// Package msg holds what goes out and comes in as messages. Out: a message is a row of the outbox, written in the
// transaction of the event that it tells of. In: a row of the inbox, written first in the transaction of the effect.
package msg

import (
	"encoding/json"
	"strconv"

	"orderd/internal/db"
)

// Message is one row of the outbox: a CloudEvents 1.0 event in JSON. There is one per order event; Seq is the event's.
type Message struct {
	OrderNo   string
	Seq       int64
	Event     string // the CloudEvents type, as "order.paid"
	Payload   string
	CreatedAt db.Time
}

// TableName implements gorm's Tabler.
func (Message) TableName() string { return "outbox_messages" }

// cloudEvent is the JSON envelope of https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md.
type cloudEvent struct {
	SpecVersion     string  `json:"specversion"`
	ID              string  `json:"id"`
	Source          string  `json:"source"`
	Type            string  `json:"type"`
	Subject         string  `json:"subject"`
	Time            db.Time `json:"time"`
	DataContentType string  `json:"datacontenttype"`
	Data            any     `json:"data"`
}

// NewMessage forms the message of an order's event.
func NewMessage(orderNo string, seq int64, event string, at db.Time, data any) (Message, error) {
	m := Message{OrderNo: orderNo, Seq: seq, Event: event, CreatedAt: at}
	payload, err := json.Marshal(cloudEvent{SpecVersion: "1.0", ID: m.ID(), Source: "/orderd", Type: event, Subject: orderNo,
		Time: at, DataContentType: "application/json", Data: data})
	m.Payload = string(payload)
	return m, err
}

// ID is the order's number and the event's: the same event never gets two, also when its transaction is run again.
func (m Message) ID() string { return m.OrderNo + "-" + strconv.FormatInt(m.Seq, 10) }

// AppendTx writes messages to the outbox. If the process dies after COMMIT they are published by any relay, later.
func AppendTx(tx *db.Tx, ms []Message) error {
	if len(ms) == 0 {
		return nil
	}
	return tx.Create(&ms).Error
}
