package idem

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/testenv"
)

func newTokens(t testing.TB, r *Redis) *Tokens {
	tokens, err := NewTokens(r, []byte(strings.Repeat("s", 32)))
	require.NoError(t, err)
	return tokens
}

func TestTokenSecretMustBeLong(t *testing.T) {
	_, err := NewTokens(nil, make([]byte, 31))
	require.Error(t, err)
}

func TestTokenIsFirstOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		tokens := newTokens(t, r)
		token, ttl, err := tokens.Issue(t.Context(), "u1", "ORDER-1")
		require.NoError(t, err)
		require.Equal(t, 30*time.Minute, ttl)

		for range 3 { // a token given back can be taken again, once
			require.Equal(t, 1, twins(50, func(int) bool {
				taken, err := tokens.Take(t.Context(), token, "u1")
				return err == nil && taken.OrderNo == "ORDER-1" && taken.First
			}))
			taken, err := tokens.Take(t.Context(), token, "u1")
			require.NoError(t, err)
			require.Equal(t, Taken{OrderNo: "ORDER-1", State: Processing}, taken) // resumed, not refused
			require.NoError(t, tokens.Back(t.Context(), token))
		}

		_, err = tokens.Take(t.Context(), token, "u1")
		require.NoError(t, err)
		require.NoError(t, tokens.Processed(t.Context(), token))
		require.NoError(t, tokens.Processed(t.Context(), token))
		require.NoError(t, tokens.Back(t.Context(), token)) // too late: changes nothing
		again, _, err := tokens.Issue(t.Context(), "u1", "ORDER-1")
		require.NoError(t, err)
		require.Equal(t, token, again)
		for range 2 {
			taken, err := tokens.Take(t.Context(), token, "u1")
			require.NoError(t, err)
			require.Equal(t, Taken{OrderNo: "ORDER-1", State: Processed}, taken)
		}
	})
}

func TestForeignAndForgedTokensAreGone(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		tokens := newTokens(t, r)
		token, _, err := tokens.Issue(t.Context(), "u1", "ORDER-1")
		require.NoError(t, err)
		orderNo, mac, _ := strings.Cut(token, ".")
		for _, c := range []struct{ token, user string }{
			{token, "u2"}, {token, ""}, {token + "x", "u1"}, {"ORDER-2." + mac, "u1"}, {orderNo, "u1"}, {orderNo + ".", "u1"},
			{"." + mac, "u1"}, {"", "u1"}, {"{x}:*\x00", "u1"}, {token[:len(token)-1], "u1"},
		} {
			taken, err := tokens.Take(t.Context(), c.token, c.user)
			require.True(t, fault.Is(err, "token_expired"), "%+v: %v", c, err)
			require.Equal(t, fault.Gone, fault.As(err).Kind)
			require.Zero(t, taken)
		}
		taken, err := tokens.Take(t.Context(), token, "u1") // none of them used it up
		require.NoError(t, err)
		require.True(t, taken.First)
	})
}

// A flush forgets the state, not the order_no: the caller looks the order up, and answers 410 only if there is none.
func TestTokenAfterFlush(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		tokens := newTokens(t, r)
		requireForgotten := func(token, orderNo string) {
			t.Helper()
			require.NoError(t, r.keys.FlushAll(t.Context()).Err())
			require.NoError(t, tokens.Processed(t.Context(), token)) // does not bring it back
			require.NoError(t, tokens.Back(t.Context(), token))
			taken, err := tokens.Take(t.Context(), token, "u1")
			require.True(t, fault.Is(err, "token_expired"))
			require.Equal(t, Taken{OrderNo: orderNo}, taken)
		}
		unused, _, err := tokens.Issue(t.Context(), "u1", "ORDER-1")
		require.NoError(t, err)
		requireForgotten(unused, "ORDER-1")

		used, _, err := tokens.Issue(t.Context(), "u1", "ORDER-2")
		require.NoError(t, err)
		_, err = tokens.Take(t.Context(), used, "u1")
		require.NoError(t, err)
		requireForgotten(used, "ORDER-2")
	})
}

func TestTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(t, embedded(t))
		unused, ttl, err := tokens.Issue(t.Context(), "u1", "ORDER-1")
		require.NoError(t, err)
		used, _, err := tokens.Issue(t.Context(), "u1", "ORDER-2")
		require.NoError(t, err)
		time.Sleep(ttl - time.Second)
		_, err = tokens.Take(t.Context(), used, "u1")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		_, err = tokens.Take(t.Context(), unused, "u1")
		require.True(t, fault.Is(err, "token_expired"))
		taken, err := tokens.Take(t.Context(), used, "u1") // its use renewed it
		require.NoError(t, err)
		require.Equal(t, Processing, taken.State)
	})
}

// Mistake one: issuing created the key, so SET NX refuses everybody.
func TestMistakeSetNXOnAnIssuedToken(t *testing.T) {
	t.Parallel()
	r := open(t, testenv.Redis(t).Addr)
	token, _, err := newTokens(t, r).Issue(t.Context(), "u1", "ORDER-1")
	require.NoError(t, err)
	require.Zero(t, twins(50, func(int) bool {
		return r.keys.SetNX(t.Context(), tokenKey(token), Processing, tokenTTL).Val()
	}))
}

// Mistake two: GET, then SET. Both twins read before either writes, and both get in.
func TestMistakeGetThenSet(t *testing.T) {
	t.Parallel()
	r := open(t, testenv.Redis(t).Addr)
	token, _, err := newTokens(t, r).Issue(t.Context(), "u1", "ORDER-1")
	require.NoError(t, err)
	read, write := make(chan struct{}, 2), make(chan struct{})
	go func() {
		<-read
		<-read
		close(write)
	}()
	require.Equal(t, 2, twins(2, func(int) bool {
		state := r.keys.Get(t.Context(), tokenKey(token)).Val()
		read <- struct{}{}
		<-write // the pause that the scheduler, the network or a collection may make at any time
		return state == Unprocessed && r.keys.Set(t.Context(), tokenKey(token), Processing, redis.KeepTTL).Err() == nil
	}))
}
