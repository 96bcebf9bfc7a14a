package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// List returns the images that have names, once for each name.
func (s *Store) List() ([]Image, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	images := []Image{}
	for _, n := range names {
		if n.Hidden {
			continue
		}
		found, err := s.Image(n.Image)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found.Ref, found.Digest = n.Ref, n.Digest
		images = append(images, *found)
	}
	slices.SortFunc(images, func(a, b Image) int { return cmp.Compare(a.Ref, b.Ref) })
	return images, nil
}

// Collected is what Collect took away, and how many images it could not.
type Collected struct {
	Images, Layers, Unfinished, Busy int
	Holders                          []string // who holds those, as far as one may know
}

// Collect takes away images without a name, layers of no image, and what dead makers left. It waits until nobody makes anything.
func (s *Store) Collect(ctx context.Context) (*Collected, error) {
	if err := s.Prepare(); err != nil {
		return nil, err
	}
	lock, err := s.Lock(ctx, whole, false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return s.collect()
}

// Remove takes one name away, or with a digest all names of its image, and then what nothing names. An image in which a box runs stays, and
// the error says so.
func (s *Store) Remove(ctx context.Context, ref string) error {
	if err := s.Prepare(); err != nil {
		return err
	}
	lock, err := s.Lock(ctx, whole, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	found, err := s.Resolve(ref)
	if err != nil {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(names), func(n Name) bool {
		return n.Hidden || n.Image != found.ID || !IsDigest(found.Ref) && n.Ref != found.Ref
	})
	others := slices.ContainsFunc(names, func(n Name) bool { return !n.Hidden && n.Image == found.ID && !slices.Contains(gone, n) })
	if !others {
		held, err := s.hold(found.ID)
		var busy *busy
		if errors.As(err, &busy) {
			return fmt.Errorf("image: %s: a sandbox runs in it, or something else holds it: %s", ref, busy.holders)
		}
		if err != nil {
			return err
		}
		held.Close()
	}
	for _, n := range gone {
		if err := os.Remove(s.namePath(n.Ref)); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	_, err = s.collect()
	return err
}

func (s *Store) collect() (*Collected, error) {
	gone := &Collected{}
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, n := range names {
		named[n.Image] = named[n.Image] || !n.Hidden
	}
	ids, err := entries(filepath.Join(s.Dir, "images"))
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, hex := range ids {
		id := "sha256:" + hex
		if !named[id] {
			err := s.dropImage(id)
			var busy *busy
			switch {
			case err == nil:
				gone.Images++
				continue
			case !errors.As(err, &busy):
				return nil, err
			}
			gone.Busy++
			gone.Holders = append(gone.Holders, busy.holders)
		}
		found, err := s.Image(id)
		if err != nil {
			return nil, err
		}
		for _, l := range found.Layers {
			used[l.DiffID] = true
		}
	}
	if err := s.dropNames(names); err != nil {
		return nil, err
	}
	layers, err := entries(filepath.Join(s.Dir, "layers"))
	if err != nil {
		return nil, err
	}
	for _, hex := range layers {
		if !used["sha256:"+hex] {
			if err := s.discard(filepath.Join(s.Dir, "layers", hex)); err != nil {
				return nil, err
			}
			gone.Layers++
		}
	}
	gone.Unfinished, err = s.sweep()
	return gone, err
}

func entries(dir string) (names []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// dropImage removes an image unless a box runs in it, which is *busy.
func (s *Store) dropImage(id string) error {
	held, err := s.hold(id)
	if errors.Is(err, fs.ErrNotExist) {
		return s.discard(s.imageDir(id)) // what has no record no box can run in
	}
	if err != nil {
		return err
	}
	return errors.Join(s.discard(s.imageDir(id)), held.Close())
}

// discard gives a directory a name in tmp/ first, so that nothing is found in part.
func (s *Store) discard(dir string) error {
	t, err := s.Temporary()
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(t.Path, "gone")); err != nil {
		return errors.Join(fmt.Errorf("image: %w", err), t.Close())
	}
	return t.Close()
}

// dropNames removes those of images that are gone.
func (s *Store) dropNames(names []Name) error {
	for _, n := range names {
		if _, err := s.Image(n.Image); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(s.namePath(n.Ref)); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	return nil
}
