// redsync, rueidislock and bsm/redislock as three of bench/peers:
// peer redsync|rueidislock|redislock crowd|held ...
// An owner is a goroutine with a connection of its own.
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type locker interface {
	acquire(key string, lease time.Duration) (release func(), err error)
	renews() bool
}

type redsyncLocker struct{ sync *redsync.Redsync }

func (l redsyncLocker) renews() bool { return false }

func (l redsyncLocker) acquire(key string, lease time.Duration) (func(), error) {
	mutex := l.sync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(1<<30), redsync.WithRetryDelay(time.Millisecond))
	if err := mutex.Lock(); err != nil {
		return nil, err
	}
	return func() {
		if _, err := mutex.Unlock(); err != nil {
			panic(err)
		}
	}, nil
}

type bsmLocker struct{ client *redislock.Client }

func (l bsmLocker) renews() bool { return false }

func (l bsmLocker) acquire(key string, lease time.Duration) (func(), error) {
	lock, err := l.client.Obtain(context.Background(), key, lease, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(time.Millisecond),
	})
	return func() { fail(lock.Release(context.Background())) }, err
}

type rueidisLocker struct{ locker rueidislock.Locker }

func (l rueidisLocker) renews() bool { return true }

func (l rueidisLocker) acquire(key string, _ time.Duration) (func(), error) {
	_, cancel, err := l.locker.WithContext(context.Background(), key)
	return func() { cancel() }, err
}

func fail(err error) {
	if err != nil {
		panic(err)
	}
}

func newLocker(library, address string, lease time.Duration) locker {
	if library != "rueidislock" {
		client := redis.NewClient(&redis.Options{Addr: address})
		fail(client.Ping(context.Background()).Err())
		if library == "redislock" {
			return bsmLocker{redislock.New(client)}
		}
		return redsyncLocker{redsync.New(goredis.NewPool(client))}
	}
	made, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		KeyValidity:    lease,
		NoLoopTracking: true,
	})
	fail(err)
	return rueidisLocker{made}
}

type waits map[int]int

func (w waits) add(took time.Duration) {
	microseconds := math.Max(float64(took)/1e3, 1)
	w[int(math.Log2(microseconds)*4)]++
}

func (w waits) text() string {
	var list []string
	for bucket, count := range w {
		list = append(list, fmt.Sprintf("%d:%d", bucket, count))
	}
	return strings.Join(list, " ")
}

func at(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }

func own(locker locker, key string, start, stop time.Time, section time.Duration) (int, waits) {
	counts, cycles := waits{}, 0
	time.Sleep(time.Until(start))
	for time.Now().Before(stop) {
		begun := time.Now()
		release, err := locker.acquire(key, 30*time.Second)
		fail(err)
		counts.add(time.Since(begun))
		if section > 0 {
			time.Sleep(section)
		}
		if time.Now().Before(stop) {
			cycles++
		}
		release()
	}
	return cycles, counts
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	fail(err)
	return value
}

func crowd(library, address, key string, args []string) {
	start, stop := at(number(args[1])), at(number(args[2]))
	section := time.Duration(number(args[3]) * 1e9)
	var all sync.WaitGroup
	var output sync.Mutex
	for i := 0; i < int(number(args[0])); i++ {
		locker := newLocker(library, address, 30*time.Second)
		all.Add(1)
		go func() {
			defer all.Done()
			cycles, counts := own(locker, key, start, stop, section)
			output.Lock()
			fmt.Printf("owner %d\nwaits %s\n", cycles, counts.text())
			output.Unlock()
		}()
	}
	all.Wait()
}

func held(library, address, key string, args []string) {
	lease := time.Duration(number(args[2]) * 1e9)
	locker := newLocker(library, address, lease)
	begun := time.Now()
	for i := 0; i < int(number(args[0])); i++ {
		_, err := locker.acquire(key+strconv.Itoa(i), lease)
		fail(err)
	}
	how := "alone"
	if locker.renews() {
		how = "renewed"
	}
	fmt.Printf("taken %f %s\n", time.Since(begun).Seconds(), how)
	time.Sleep(time.Duration(number(args[1]) * 1e9))
	fmt.Println("lost 0")
}

func main() {
	library, mode, address, key := os.Args[1], os.Args[2], "127.0.0.1:"+os.Args[3], os.Args[4]
	if mode == "crowd" {
		crowd(library, address, key, os.Args[5:])
	} else {
		held(library, address, key, os.Args[5:])
	}
}
