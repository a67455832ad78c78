package db

import "strings"

// AnyPair forms a condition that matches rows whose columns a and b are one of the pairs. MySQL, MariaDB and SQLite
// each spell IN over row values their own way; this they all understand and answer by the index on (a, b).
func AnyPair(a, b string, pairs [][2]string) (sql string, args []any) {
	one := "(" + a + " = ? AND " + b + " = ?)"
	for _, p := range pairs {
		args = append(args, p[0], p[1])
	}
	return "(" + strings.Repeat(one+" OR ", len(pairs)-1) + one + ")", args
}
