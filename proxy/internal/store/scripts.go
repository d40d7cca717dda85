package store

import (
	_ "embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/clock.lua
var luaClock string

//go:embed lua/entry.lua
var luaEntry string

//go:embed lua/owned.lua
var luaOwned string

//go:embed lua/turn.lua
var luaTurn string

var (
	//go:embed lua/claim.lua
	luaClaim string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/drain.lua
	luaDrain string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/save.lua
	luaSave string
	//go:embed lua/look.lua
	luaLook string
	//go:embed lua/putturn.lua
	luaPutTurn string
	//go:embed lua/dropturn.lua
	luaDropTurn string
	//go:embed lua/append.lua
	luaAppend string
	//go:embed lua/putnote.lua
	luaPutNote string
	//go:embed lua/notes.lua
	luaNotes string
	//go:embed lua/lease.lua
	luaLease string
)

// Each operation is one script: the server runs it as a whole, so that what it
// compares cannot change before it writes.
var (
	scriptClaim    = script(luaEntry, luaClaim)
	scriptRenew    = script(luaEntry, luaOwned, luaRenew)
	scriptDrain    = script(luaEntry, luaOwned, luaDrain)
	scriptRelease  = script(luaEntry, luaRelease)
	scriptSave     = script(luaEntry, luaOwned, luaSave)
	scriptLook     = script(luaEntry, luaLook)
	scriptPutTurn  = script(luaEntry, luaOwned, luaTurn, luaPutTurn)
	scriptDropTurn = script(luaEntry, luaOwned, luaTurn, luaDropTurn)
	scriptAppend   = script(luaEntry, luaOwned, luaTurn, luaAppend)
	scriptPutNote  = script(luaPutNote)
	scriptNotes    = script(luaNotes)
	scriptLease    = script(luaLease)
)

func script(parts ...string) *redis.Script {
	return redis.NewScript(luaClock + "\n" + strings.Join(parts, "\n"))
}
