package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// kept are the secrets that embedded mode makes once.
type kept struct {
	JWTSecret            string `json:"jwt_secret"`
	SandboxAPIKey        string `json:"sandbox_api_key"`
	SandboxWebhookSecret string `json:"sandbox_webhook_secret"`
}

// keepSecrets takes the secrets that are not given from the data directory, which gets them at the first start.
func (s *Settings) keepSecrets() error {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(s.DataDir, "secrets.json")
	k, err := readSecrets(path)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = makeSecrets(path)
	}
	if err != nil {
		return fmt.Errorf("secrets of the embedded mode: %w", err)
	}
	if s.JWTSecret == "" && s.JWTPublicKey == "" {
		s.JWTSecret = k.JWTSecret
	}
	if s.SandboxAPIKey == "" {
		s.SandboxAPIKey = k.SandboxAPIKey
	}
	if s.SandboxWebhookSecret == "" {
		s.SandboxWebhookSecret = k.SandboxWebhookSecret
	}
	return nil
}

func readSecrets(path string) (k kept, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

// makeSecrets writes a new file, whole or not at all: two processes may start at once, and the first one's stays.
func makeSecrets(path string) (kept, error) {
	k := kept{JWTSecret: randomText(), SandboxAPIKey: randomText(), SandboxWebhookSecret: "whsec_" + randomText()}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return k, err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "secrets-*")
	if err != nil {
		return k, err
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return k, err
	}
	if err := os.Link(draft.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return k, err
	}
	return readSecrets(path)
}

func randomText() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// lockDir takes the data directory for this process. The system gives it back when the process ends, however it ends.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s is in use by another orderd; stop that one, or give this one its own --data-dir", dir), f.Close())
	}
	return f.Close, nil
}
