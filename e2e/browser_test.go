package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// browserLimit is for a whole test in the browser, its start on a busy machine included.
const browserLimit = 4 * time.Minute

// browser is one tab of a real Chromium with a fresh profile, and what it has seen.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // URLs
	errors   []string // of scripts, of the network and of the content security policy
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), browserLimit)
	t.Cleanup(cancel)
	flags := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(900, 700),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	alloc, cancel := chromedp.NewExecAllocator(limit, flags...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // in order, so that nobody writes into the profile any more when it is removed
		cancel()
	})
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.see))
	return b
}

func (b *browser) see(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.errors = append(b.errors, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// seen returns the URLs that are not of base, and the errors.
func (b *browser) seen(base string) (foreign, errors []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requests {
		if !strings.HasPrefix(url, base+"/") && !strings.HasPrefix(url, "data:") && !strings.HasPrefix(url, "blob:") {
			foreign = append(foreign, url)
		}
	}
	return foreign, b.errors
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.screenshot("failed")
		b.t.Fatal(err)
	}
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(selector)))
	require.NoError(b.t, err)
	return text
}

// screenshot writes one to the test's artifacts: `go test -artifacts -outputdir DIR` keeps them.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), image, 0o600))
}

// pay opens an order's pay_url and presses Pay, as the shopper does.
func (b *browser) pay(url, amount string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#pay")))
	require.Equal(b.t, amount, b.text("#amount"))
	b.screenshot("pay")
	b.do(chromedp.Click(chromedp.CSS("#pay")), chromedp.WaitVisible(chromedp.CSS("#result")))
	require.Equal(b.t, "Paid. Thank you.", b.text("#result"))
	b.screenshot("paid")
}

// What a newcomer does: start it, paste what it prints, press Pay.
func TestPrintedLinesPlaceAnOrderThatIsPaidInTheBrowser(t *testing.T) {
	t.Parallel()
	demo := startDemo(t)
	var lines []string
	for line := range strings.Lines(demo.Log()) {
		if strings.HasPrefix(line, "TOKEN=") || strings.HasPrefix(line, "curl ") {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, 4, "a token, and three lines with curl")
	paste := func(line string) string { return demo.shell(t, lines[0]+line) }

	require.Contains(t, paste(lines[1]), `"sku":"TEA-250"`)
	placed := readOrder(t, paste(lines[2]))
	require.Equal(t, "PAYING", placed.Status)
	require.NotNil(t, placed.Payment.PayURL)

	b := startBrowser(t)
	b.pay(*placed.Payment.PayURL, "CN¥258.00")
	demo.becomesPaid(t, func() string { return paste(lines[3]) })
	require.Equal(t, placed.OrderNo, readOrder(t, paste(lines[2])).OrderNo, "sent again: the same order")
	foreign, errors := b.seen(demo.url("sandbox"))
	require.Empty(t, foreign)
	require.Empty(t, errors)
}

func readOrder(t *testing.T, text string) (o orderView) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &o), "%s", text)
	return o
}

// The reference works without the internet, under its strict content security policy.
func TestReferenceInTheBrowser(t *testing.T) {
	t.Parallel()
	demo := startDemo(t)
	b := startBrowser(t)
	b.do(chromedp.Navigate(demo.url("api")+"/docs"), chromedp.WaitVisible(chromedp.CSS(".opblock-summary-post")))
	require.Contains(t, b.text("#swagger-ui"), "/v1/orders")
	b.screenshot("reference")
	b.do(chromedp.Click(chromedp.CSS(".opblock-summary-post")), chromedp.WaitVisible(chromedp.CSS(".opblock-body")))
	b.screenshot("operation")
	foreign, errors := b.seen(demo.url("api"))
	require.Empty(t, foreign)
	require.Empty(t, errors)
}
