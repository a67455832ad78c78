package e2e

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

var composeSecrets = map[string]string{
	"MYSQL_PASSWORD": "s3cret-mysql", "RABBITMQ_PASSWORD": "s3cret-rabbit", "ORDERD_JWT_SECRET": "s3cret-jwt",
	"ORDERD_SANDBOX_API_KEY": "s3cret-key", "ORDERD_SANDBOX_WEBHOOK_SECRET": "s3cret-hook",
}

func loadCompose(t *testing.T, secrets map[string]string) (*types.Project, error) {
	t.Helper()
	text, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: "..", Environment: maps.Clone(secrets), // the loader writes into it
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.yml", Content: text}},
	})
}

func TestComposeStartsEverythingInOrder(t *testing.T) {
	t.Parallel()
	p, err := loadCompose(t, composeSecrets)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"mysql", "redis", "rabbitmq", "migrate", "sandbox", "orderd"}, p.ServiceNames())
	for name, s := range p.Services {
		if name != "migrate" { // runs once
			require.NotNil(t, s.HealthCheck, name)
			require.NotEmpty(t, s.HealthCheck.Test, name)
		}
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s: nothing is published to the network", name)
		}
	}
	waits := func(service, on string) string { return p.Services[service].DependsOn[on].Condition }
	require.Equal(t, types.ServiceConditionHealthy, waits("migrate", "mysql"))
	require.Equal(t, types.ServiceConditionCompletedSuccessfully, waits("orderd", "migrate"))
	for _, on := range []string{"redis", "rabbitmq", "sandbox"} {
		require.Equal(t, types.ServiceConditionHealthy, waits("orderd", on))
	}
}

func TestComposeRefusesToStartWithoutSecrets(t *testing.T) {
	t.Parallel()
	for missing := range composeSecrets {
		some := map[string]string{}
		for name, value := range composeSecrets {
			if name != missing {
				some[name] = value
			}
		}
		_, err := loadCompose(t, some)
		require.ErrorContains(t, err, missing)
	}
}

var setting = regexp.MustCompile(`ORDERD_[A-Z_]+`)

func TestComposeSettingsExist(t *testing.T) {
	t.Parallel()
	p, err := loadCompose(t, composeSecrets)
	require.NoError(t, err)
	path, err := binary()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"sandbox", "--help"}, {"migrate", "up", "--help"}} {
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, name := range setting.FindAllString(string(out), -1) {
			known[name] = true
		}
	}
	for name, s := range p.Services {
		for key := range s.Environment {
			if strings.HasPrefix(key, "ORDERD_") {
				require.True(t, known[key], "service %s sets %s, which orderd does not know", name, key)
			}
		}
	}
}
