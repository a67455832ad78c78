package wechatpay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

// refusal is WeChat Pay's signed no: a status of 4xx with a code.
type refusal struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *refusal) Error() string {
	return fmt.Sprintf("wechatpay: refused: %d %s %s", r.Status, r.Code, r.Message)
}

func (r *refusal) Unwrap() error { return payment.ErrRefused }

// refused reports whether err is a refusal with one of the codes.
func refused(err error, codes ...string) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains(codes, r.Code)
}

// notExist are the codes for "we do not have it", older and newer ones.
var notExist = []string{"ORDER_NOT_EXIST", "ORDERNOTEXIST", "RESOURCE_NOT_EXISTS"}

// call sends one request and reads the verified answer into out (nil: nothing is expected). An error that is no *refusal
// says nothing of what happened. An unsigned error answer is no refusal: a proxy could have made it up.
func (g *Gateway) call(ctx context.Context, method, target string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, g.cfg.URL+target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	authorization, err := g.authorization(method, target, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "orderd")
	req.Header.Set("Wechatpay-Serial", g.cfg.Platform[0].Serial) // which key the answer shall be signed with
	path, _, _ := strings.Cut(target, "?")
	status, header, answer, err := signed.Do(g.cfg.Client, req)
	if err != nil {
		return fmt.Errorf("wechatpay: %s %s: %w", method, path, err)
	}
	if err := g.verify(header, answer, g.cfg.Now()); err != nil {
		return fmt.Errorf("wechatpay: %s %s: an answer with status %d cannot be believed: %w", method, path, status, err)
	}
	switch {
	case status == http.StatusNoContent && out == nil:
		return nil
	case status == http.StatusOK && out != nil:
		if err := json.Unmarshal(answer, out); err != nil {
			return fmt.Errorf("wechatpay: %s %s: %w", method, path, err)
		}
		return nil
	}
	r := &refusal{Status: status}
	if err := json.Unmarshal(answer, r); err != nil || r.Code == "" || status < 400 || status > 499 || status == http.StatusTooManyRequests {
		return fmt.Errorf("wechatpay: %s %s answered %d %s %s", method, path, status, r.Code, r.Message)
	}
	return r
}
