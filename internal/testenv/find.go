package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages maps each program that tests start to its Debian package.
var packages = map[string]string{
	"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server", "redis-server": "redis-server",
	"rabbitmq-server": "rabbitmq-server", "epmd": "erlang-base", "chromium": "chromium", "faketime": "faketime",
}

// Find returns the path of a program. Servers live in sbin, which is not on every user's PATH.
func Find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/", "/usr/lib/rabbitmq/bin/", "/usr/libexec/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: `make deps` installs it (Debian package %s)", program, packages[program])
}

// Install installs the Debian packages of the programs that are missing; it needs root and apt-get for that. The packaged
// services are not started: tests start their own.
func Install() error {
	missing := map[string]bool{}
	for program, pkg := range packages {
		if _, err := Find(program); err != nil {
			missing[pkg] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, 0, len(missing))
	for name := range missing {
		names = append(names, name)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("not installed: %s; install them, or run `make deps` as root on Debian", strings.Join(names, ", "))
	}
	deny, err := denyServiceStart()
	if err != nil {
		return err
	}
	defer deny()
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, names...)} {
		cmd := exec.Command("apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// denyServiceStart makes Debian's maintainer scripts leave the services stopped, unless the machine has a rule already.
func denyServiceStart() (undo func(), err error) {
	const policy = "/usr/sbin/policy-rc.d" // exit code 101: action forbidden by policy
	if _, err := os.Stat(policy); err == nil {
		return func() {}, nil
	}
	if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(policy) }, nil
}
