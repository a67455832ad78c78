// Package migrations holds the schema, one statement a file, for MySQL (MariaDB, TiDB) and for SQLite. Replicas of the release
// before go on serving on the new schema until they are replaced, so a migration takes away nothing that they use, and
// demands nothing that they do not write.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// For returns the migrations of a dialect: "mysql" or "sqlite".
func For(dialect string) fs.FS {
	sub, err := fs.Sub(files, dialect)
	if err != nil {
		panic(err) // only for a path that is not valid
	}
	return sub
}
