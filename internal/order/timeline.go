package order

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"orderd/internal/msg"
)

// Timeline returns the order's events and the callbacks that were received for it, in order. A callback's detail tells
// how many repeats of it came.
func (s *Service) Timeline(ctx context.Context, a Actor, orderNo string) ([]TimelineEntry, error) {
	if _, err := s.Get(ctx, a, orderNo); err != nil {
		return nil, err
	}
	var events []event
	if err := s.DB.Read(ctx).Where("order_no = ?", orderNo).Order("seq").Find(&events).Error; err != nil {
		return nil, err
	}
	var received []msg.Received
	if err := s.DB.Read(ctx).Where("order_no = ?", orderNo).Order("received_at, message_id").Find(&received).Error; err != nil {
		return nil, err
	}
	entries := make([]TimelineEntry, 0, len(events)+len(received))
	for _, r := range received { // before the events of the same instant, which they caused
		detail := fmt.Sprintf("%s: %s", r.MessageID, r.Outcome)
		if r.Duplicates > 0 {
			detail += fmt.Sprintf(", repeated %d times", r.Duplicates)
		}
		kind, _, _ := strings.Cut(r.Source, ":") // callback, or: answer (to a question of ours), queue (a command)
		entries = append(entries, TimelineEntry{At: r.ReceivedAt, Kind: kind, Event: r.Kind, Actor: r.Source, Detail: detail})
	}
	for _, e := range events {
		entries = append(entries, TimelineEntry{At: e.At, Kind: "event", From: e.FromStatus, To: e.ToStatus, Event: e.Event, Actor: e.Actor, Detail: e.Detail})
	}
	slices.SortStableFunc(entries, func(x, y TimelineEntry) int { return cmp.Compare(x.At.UnixMicro(), y.At.UnixMicro()) })
	return entries, nil
}
