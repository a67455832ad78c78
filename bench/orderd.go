package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"orderd/internal/testenv"
)

const (
	jwtSecret     = "bench-jwt-secret-of-at-least-32-bytes"
	apiKey        = "bench-sandbox-api-key"
	webhookSecret = "whsec_YmVuY2gtd2ViaG9vay1zZWNyZXQtb2YtMzItYnl0ZXM="
	merchantID    = "m-bench"
)

// build compiles the orderd that is measured, from the source that the bench is run in.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "orderd")
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path, "orderd/cmd/orderd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// settings are what every orderd of the bench runs with. Limits per user are off: a thousand users stand for many.
func settings(vars ...string) []string {
	return append([]string{
		"ORDERD_JWT_SECRET=" + jwtSecret, "ORDERD_SANDBOX_API_KEY=" + apiKey, "ORDERD_SANDBOX_WEBHOOK_SECRET=" + webhookSecret,
		"ORDERD_MERCHANT_ID=" + merchantID, "ORDERD_RATE_LIMIT=0", "ORDERD_MAX_OPEN_ORDERS=0",
		"ORDERD_PAY_TIMEOUT=24h", // what nobody pays must not expire during a later measurement
		"ORDERD_LOG_LEVEL=warn",
	}, vars...)
}

// orderd is a running replica.
type orderd struct {
	server
	ops     string        // host:port of /metrics
	started time.Duration // until the first answer
}

// startOrderd starts a replica and waits until it answers.
func startOrderd(ctx context.Context, path, dir string, env []string) (*orderd, error) {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = testenv.FreePort(); err != nil {
			return nil, err
		}
	}
	o := &orderd{server: server{addr: "127.0.0.1:" + strconv.Itoa(ports[0])}, ops: "127.0.0.1:" + strconv.Itoa(ports[1])}
	env = append(env, "ORDERD_ADDR="+o.addr, "ORDERD_OPS_ADDR="+o.ops, "ORDERD_SANDBOX_ADDR=127.0.0.1:"+strconv.Itoa(ports[2]))
	began := time.Now()
	p, err := startLogged(dir, "orderd", path, env, "serve")
	if err != nil {
		return nil, err
	}
	o.Process = p
	if err := o.awaitAnswer(ctx); err != nil {
		p.Kill()
		return nil, fmt.Errorf("orderd serve: %w\n%s", err, logTail(dir, "orderd"))
	}
	o.started = time.Since(began)
	return o, nil
}

func (o *orderd) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	often := time.NewTicker(time.Millisecond)
	defer often.Stop()
	for {
		body, err := fetch(ctx, "http://"+o.addr+"/healthz")
		if err == nil {
			return body.Close()
		}
		select {
		case <-often.C:
		case <-o.Done():
			return errors.New("ended before it answered")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// stop ends it as an operator does; it must end well.
func (o *orderd) stop() error {
	if code := o.Term(30 * time.Second); code != 0 {
		return fmt.Errorf("orderd ended with exit code %d", code)
	}
	return nil
}

// counters reads /metrics: each name's sum over its labels.
func (o *orderd) counters(ctx context.Context) (map[string]float64, error) {
	body, err := fetch(ctx, "http://"+o.ops+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseMetrics(body)
}

func parseMetrics(text io.Reader) (map[string]float64, error) {
	sums := map[string]float64{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		name := line[:strings.IndexAny(line+" ", " {")]
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		sums[name] += value
	}
	return sums, lines.Err()
}

func fetch(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", url, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// runAudit runs `orderd audit`, which exits with another code than 0 if a row is wrong.
func runAudit(ctx context.Context, path string, env []string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "audit")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("orderd audit: %w\n%s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
