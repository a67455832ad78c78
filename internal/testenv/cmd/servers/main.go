// Command servers starts the servers that tests need, runs a command with their addresses in its environment, stops the
// servers and exits with the command's code:
//
//	servers [-rabbitmq] -- go test ./...
//	servers -install        only installs what is missing (Debian, root)
//	servers                 without a command: prints the environment and waits for Ctrl-C
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"orderd/internal/testenv"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		code = 1
	}
	os.Exit(code)
}

func run() (code int, err error) {
	rabbit := flag.Bool("rabbitmq", false, "start RabbitMQ too")
	install := flag.Bool("install", false, "install the missing programs and end")
	flag.Parse()
	if err := testenv.Install(); err != nil {
		return 0, err
	}
	if *install {
		return 0, nil
	}
	// From here on a signal ends the command, not us: the servers must be stopped in any case.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	env, stopServers, err := testenv.StartShared(*rabbit)
	if err != nil {
		return 0, err
	}
	defer stopServers()
	if flag.NArg() == 0 {
		fmt.Println(strings.Join(env, "\n"))
		<-ctx.Done()
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil // ended by a signal
}
