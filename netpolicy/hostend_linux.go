package netpolicy

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// remove takes a box's rules away, and with the last one all of the table. It is no error if they are gone, as after `nft flush ruleset`.
func (t *hostTable) remove(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := errors.Join(
		t.conn.SetDeleteElements(hostBoxes, []nftables.SetElement{{Key: ifname(name)}}),
		t.conn.SetDeleteElements(hostLinks, []nftables.SetElement{{Key: ifname(name)}}),
	)
	if err != nil {
		return fmt.Errorf("netpolicy: %w", err)
	}
	t.conn.DelChain(&nftables.Chain{Table: hostOf, Name: name})
	if err := t.conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("netpolicy: remove nftables rules of %s: %w", name, err)
	}
	return t.prune()
}

// sent says of which families a box sent packets, as far as is known.
func (t *hostTable) sent(name string) (four, six bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rules, err := t.conn.GetRules(hostOf, &nftables.Chain{Table: hostOf, Name: name})
	if err != nil || len(rules) == 0 {
		return true, true
	}
	for _, r := range rules {
		for i, e := range r.Exprs {
			if c, counts := e.(*expr.Counter); counts && c.Packets > 0 && i > 0 {
				of, _ := r.Exprs[i-1].(*expr.Cmp)
				four, six = four || of != nil && bytes.Equal(of.Data, []byte{ipv4}), six || of != nil && bytes.Equal(of.Data, []byte{ipv6})
			}
		}
	}
	return four, six
}

// tidy removes a table without boxes.
func (t *hostTable) tidy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.prune()
}

// prune: every box's chain refers to the chain floor, which the kernel thus keeps as long as there is one, and with it the table. Whoever
// adds a box meanwhile is not in danger.
func (t *hostTable) prune() error {
	if elements, err := t.elements(); err != nil || len(elements) > 0 || !t.exists() {
		return err
	}
	t.conn.DelChain(hostFloor)
	t.conn.DelTable(hostOf)
	if err := t.conn.Flush(); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("netpolicy: remove nftables table %s: %w", hostOf.Name, err)
	}
	return nil
}

// links are the names and numbers of links that the table has rules of.
func (t *hostTable) links() (map[string]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	elements, err := t.elements()
	if err != nil {
		return nil, err
	}
	numbers := make(map[string]int, len(elements))
	for _, e := range elements {
		number, err := strconv.Atoi(e.Comment)
		if err != nil {
			number = -1
		}
		numbers[unix.ByteSliceToString(e.Key)] = number
	}
	return numbers, nil
}

// elements are none if there is no table, which may come and go at any time.
func (t *hostTable) elements() (elements []nftables.SetElement, err error) {
	for range tries {
		if !t.exists() {
			return nil, nil
		}
		if elements, err = t.conn.GetSetElements(hostLinks); err == nil {
			return elements, nil
		}
	}
	return nil, fmt.Errorf("netpolicy: list nftables set %s: %w", hostLinks.Name, err)
}
