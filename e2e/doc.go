// Package e2e tests orderd from outside: the real binary, started as a process, against real servers, through HTTP.
package e2e
