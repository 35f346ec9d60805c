// The Mutex of redsync on one Redis, by go-redis: SET NX PX with an owner's value; Extend and Unlock compare it.
package main

import (
	"errors"
	"fmt"
	"math/rand"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

var errorTable = map[string]string{
	// error.go, ErrTaken, of mutex.go, lockContext: the last of its tries found the key. (A value that an earlier one,
	// without an answer, may have left there is thrown away: nobody believes in it.)
	"lock already taken": "fail",
	// mutex.go, ExtendContext: touchScript answered 0, which it does where the key has not our value. go-redis may have
	// sent it twice (MaxRetries), which for an extension is the same.
	"extend: lock already taken": "fail",
	// mutex.go, UnlockContext: deleteScript answered -1, no key, or 0, another's; but it may have been sent twice, and
	// then the first may have deleted ours. Nobody knows.
	"unlock: ": "info",
	// error.go, RedisError: whatever go-redis says; the request may have been sent.
	"*": "info",
}

func main() {
	config, since := read(), 0.0
	address := fmt.Sprintf("%v:%v", config.Endpoints[0][0], config.Endpoints[0][1])
	client := goredislib.NewClient(&goredislib.Options{Addr: address, Password: config.Settings.Password})
	rs, ttl := redsync.New(goredis.NewPool(client)), time.Duration(config.TTL*float64(time.Second))
	pause := redsync.WithRetryDelayFunc(func(int) time.Duration { // as redsync.go has it, with a stamp from before the try
		since = now()
		return time.Duration(rand.Intn(200)+50) * time.Millisecond
	})
	var mutex *redsync.Mutex
	speak("redsync", "github.com/go-redsync/redsync/v4", errorTable, map[string]func(float64) (answer, error){
		"acquire": func(wait float64) (answer, error) {
			tries := redsync.WithTries(1 + int(wait/0.15)) // 0.15 s is the mean of its pauses
			mutex, since = rs.NewMutex(config.Lock, redsync.WithExpiry(ttl), tries, pause), now()
			err := mutex.Lock()
			return answer{"since": answer{"at": since}}, err
		},
		"renew": func(float64) (answer, error) {
			_, err := mutex.Extend()
			return answer{"proves": true}, said("extend: ", err, errors.As(err, new(*redsync.ErrTaken)))
		},
		"release": func(float64) (answer, error) {
			_, err := mutex.Unlock()
			return answer{"proves": true}, said("unlock: ", err, false)
		},
	})
}
