package fsm

// States of an order.
const (
	Created   State = "CREATED"   // stored, nothing reserved
	Reserved  State = "RESERVED"  // stock taken
	Paying    State = "PAYING"    // a payment attempt was recorded; the gateway is called after that
	Paid      State = "PAID"      // exactly one payment is applied
	Shipped   State = "SHIPPED"   // handed over
	Completed State = "COMPLETED" // received
	Cancelled State = "CANCELLED" // given up before payment; stock given back
	Refunded  State = "REFUNDED"  // all of its money sent back
)

// States of a payment and of a refund (which has no Init and no Closed).
const (
	Init      State = "INIT"      // recorded, the gateway not asked yet
	Pending   State = "PENDING"   // the gateway has it
	Unknown   State = "UNKNOWN"   // the gateway was asked and the answer was lost
	Succeeded State = "SUCCEEDED" // the money moved
	Failed    State = "FAILED"    // the gateway said no
	Closed    State = "CLOSED"    // made unpayable by us
)

// Events of an order.
const (
	Create      Event = "create"
	Reserve     Event = "reserve"
	OpenPayment Event = "open_payment"
	Pay         Event = "pay"
	Ship        Event = "ship"
	Complete    Event = "complete"
	Cancel      Event = "cancel" // expiry is a cancel with the reason "expired"
	Refund      Event = "refund"
)

// Events of a payment and of a refund.
const (
	Open    Event = "open"
	Accept  Event = "accept"
	Lose    Event = "lose"
	Succeed Event = "succeed"
	Fail    Event = "fail"
	Close   Event = "close"
)

// Orders is the state machine of an order.
var Orders = newMachine("order",
	Edge{Create, []State{None}, Created},
	Edge{Reserve, []State{Created}, Reserved},
	Edge{OpenPayment, []State{Reserved}, Paying},
	Edge{Pay, []State{Paying}, Paid},
	Edge{Ship, []State{Paid}, Shipped},
	Edge{Complete, []State{Shipped}, Completed},
	Edge{Cancel, []State{Created, Reserved, Paying}, Cancelled},
	Edge{Refund, []State{Paid, Shipped, Completed}, Refunded},
)

// Payments is the state machine of a payment attempt. Money that arrived is always booked: Succeed has an edge from
// every state but its own.
var Payments = newMachine("payment",
	Edge{Open, []State{None}, Init},
	Edge{Accept, []State{Init, Unknown}, Pending},
	Edge{Lose, []State{Init, Pending}, Unknown},
	Edge{Succeed, []State{Init, Pending, Unknown, Failed, Closed}, Succeeded},
	Edge{Fail, []State{Init, Pending, Unknown}, Failed},
	Edge{Close, []State{Init, Pending, Unknown, Failed}, Closed},
)

// Refunds is the state machine of a refund.
var Refunds = newMachine("refund",
	Edge{Open, []State{None}, Pending},
	Edge{Lose, []State{Pending}, Unknown},
	Edge{Succeed, []State{Pending, Unknown, Failed}, Succeeded},
	Edge{Fail, []State{Pending, Unknown}, Failed},
)
