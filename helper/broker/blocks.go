package broker

import (
	"errors"
	"math/rand/v2"
)

// Blocks of ids for workers: above those for boxes of root's, in what systemd's and shadow's documents leave unused.
const (
	firstID   = 0x71000000
	blockSize = 1 << 16
	blockIDs  = 0x0f00
)

// block is a range of ids that one worker's boxes use.
type block struct{ first uint32 }

// blocks are those that are given out. They are drawn by lot: a worker of a broker that died may be just about to end.
type blocks struct{ taken map[uint32]bool }

func (b *blocks) take() (block, error) {
	if b.taken == nil {
		b.taken = map[uint32]bool{}
	}
	const tries = 100
	for range tries {
		n := rand.Uint32N(blockIDs)
		if !b.taken[n] {
			b.taken[n] = true
			return block{firstID + n*blockSize}, nil
		}
	}
	return block{}, errors.New("broker: no free block of ids for a worker")
}

func (b *blocks) give(one block) { delete(b.taken, (one.first-firstID)/blockSize) }
