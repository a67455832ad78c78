package main

import (
	"regexp"
	"strconv"
	"strings"
)

// What one client does, over and over.
const (
	life      = "life"      // place, and send the signed callback that pays
	place     = "place"     // place only
	replay    = "replay"    // place the same order again
	get       = "get"       // read an order
	duplicate = "duplicate" // send the same callback again
	flood     = "flood"     // place only, without having warmed up
	start     = "start"     // no client: only start orderd on an empty directory
)

// Where the work is done.
const (
	onFloor    = "floor"    // raw SQL, minimal rows
	onRows     = "rows"     // raw SQL, the rows that orderd writes
	onOrderd   = "orderd"   // orderd with MariaDB and Redis
	onEmbedded = "embedded" // orderd all by itself
)

// setup is a configuration that is measured.
type setup struct {
	name      string // "life/64"
	on        string
	op        string
	clients   int
	grouped   bool     // one connection does the work instead, for as many orders at once as there would be clients
	hops      bool     // with the calls over the network that a life makes besides
	hot       bool     // all orders are for one SKU
	replicas  int      // of orderd
	vars      []string // settings of orderd, "KEY=value"
	refusable bool     // 503 with Retry-After is an answer: the client waits and sends again
}

// share says how many connections do the work, and how many operations each of them does at once.
func (s setup) share() (connections, each int) {
	if s.grouped {
		return 1, s.clients
	}
	return s.clients, 1
}

// Below these names the ratios are looked up.
func (s setup) floorName() string {
	if s.op != life {
		return ""
	}
	if s.hot {
		return "floor-hot/" + strconv.Itoa(s.clients)
	}
	return "floor/" + strconv.Itoa(s.clients)
}

func (s setup) rowsName() string {
	if s.op != life || s.hot {
		return ""
	}
	return "rows/" + strconv.Itoa(s.clients)
}

// noBatch turns grouping off: every order has its own transactions, and may run out of tries for a version of its stock.
const noBatch = "ORDERD_BATCH_SIZE=1"

var setups = func() []setup {
	var all []setup
	add := func(s setup, clients ...int) {
		for _, n := range clients {
			c := s
			c.clients, c.replicas = n, max(1, s.replicas)
			c.name = s.name + "/" + strconv.Itoa(n)
			all = append(all, c)
		}
	}
	add(setup{name: "floor", on: onFloor, op: life}, 1, 16, 32, 64, 256)
	add(setup{name: "rows", on: onRows, op: life}, 1, 16, 32, 64, 256)
	add(setup{name: "rows-grouped", on: onRows, op: life, grouped: true}, 16, 64)
	add(setup{name: "rows-hops", on: onRows, op: life, hops: true}, 1)
	add(setup{name: "life", on: onOrderd, op: life}, 1, 16, 32, 64, 256)
	add(setup{name: "life-nobatch", on: onOrderd, op: life, vars: []string{noBatch}, refusable: true}, 1, 16, 64, 256)
	add(setup{name: "floor-hot", on: onFloor, op: life, hot: true}, 256)
	add(setup{name: "life-hot", on: onOrderd, op: life, hot: true}, 256)
	add(setup{name: "life-hot-nobatch", on: onOrderd, op: life, hot: true, vars: []string{noBatch}, refusable: true}, 16)
	add(setup{name: "life-2replicas", on: onOrderd, op: life, replicas: 2}, 64, 256)
	add(setup{name: "life-embedded", on: onEmbedded, op: life}, 1, 64)
	add(setup{name: "place", on: onOrderd, op: place}, 64)
	add(setup{name: "replay", on: onOrderd, op: replay}, 64)
	add(setup{name: "get", on: onOrderd, op: get}, 64)
	add(setup{name: "duplicate-callback", on: onOrderd, op: duplicate}, 64)
	add(setup{name: "overload", on: onOrderd, op: flood, refusable: true}, 4000)
	return append(all, setup{name: "start-embedded", on: onEmbedded, op: start, replicas: 1})
}()

// choose returns the setups whose name matches, and those that they are compared with.
func choose(all []setup, only *regexp.Regexp) []setup {
	wanted := map[string]bool{}
	for _, s := range all {
		if only.MatchString(s.name) {
			wanted[s.name], wanted[s.floorName()], wanted[s.rowsName()] = true, true, true
		}
	}
	var chosen []setup
	for _, s := range all {
		if wanted[s.name] {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// family is the name without the number of clients.
func (s setup) family() string {
	name, _, _ := strings.Cut(s.name, "/")
	return name
}
