package msg

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxBody is the most that a command may have, in bytes: as much as a request's body.
const MaxBody = 64 << 10

// Command is a decoded command: a CloudEvents 1.0 event in JSON, as the events that go out. (Source, ID) names it: who
// sends it again, under the same two, means the same.
type Command struct {
	Source string // the inbox's: "queue:" and the source attribute
	ID     string
	Type   string
	Data   []byte // JSON
	Hash   string // hex SHA-256 of the whole body
}

// What fits into the inbox, and into the cause of an order's event together with the source.
var (
	validID     = regexp.MustCompile(`^[!-~]{1,64}$`)
	validSource = regexp.MustCompile(`^[!-~]{1,58}$`)
)

// Decode reads a command. Its errors mean that no try will ever do better.
func Decode(body []byte) (Command, error) {
	if len(body) > MaxBody {
		return Command{}, fmt.Errorf("has %d bytes: more than %d", len(body), MaxBody)
	}
	var in struct {
		SpecVersion string         `json:"specversion"`
		ID          string         `json:"id"`
		Source      string         `json:"source"`
		Type        string         `json:"type"`
		Data        jsontext.Value `json:"data"`
	}
	if err := json.Unmarshal(body, &in); err != nil { // also invalid UTF-8, and names that are given twice
		return Command{}, fmt.Errorf("is no CloudEvents JSON: %w", err)
	}
	switch {
	case in.SpecVersion != "1.0":
		return Command{}, fmt.Errorf("specversion is %.20q, not 1.0", in.SpecVersion)
	case !validID.MatchString(in.ID):
		return Command{}, errors.New("id is missing, or not 1 to 64 printable ASCII characters")
	case !validSource.MatchString(in.Source):
		return Command{}, errors.New("source is missing, or not 1 to 58 printable ASCII characters")
	}
	return Command{Source: "queue:" + in.Source, ID: in.ID, Type: in.Type, Data: in.Data, Hash: hash(body)}, nil
}

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Key names a parked command.
func Key(body []byte) string { return hash(body)[:16] }
