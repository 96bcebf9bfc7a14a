package server

import (
	"errors"
	"fmt"
	"strings"

	"skillbox/helper"
	"skillbox/image"
	"skillbox/policy"
	"skillbox/sandbox"
)

// identifyImage finds the image that a policy names as its base. A skillboxd that works for a user has that user's rights, so it sees the
// images that the user may read.
func identifyImage(s *sandbox.Sources, p *policy.Policy, own string) (err error) {
	base := p.Rootfs.Base
	if base == "host" || strings.HasPrefix(base, "dir:") {
		return nil
	}
	at := p.Position("rootfs.base")
	s.Image, err = image.Find(base, own, image.SystemDir)
	var missing *image.Missing
	if errors.As(err, &missing) {
		e := &helper.Error{Message: missing.Error(), Hint: missing.Hint(), File: at.File, Line: at.Line, Column: at.Column, Field: "rootfs.base"}
		if missing.Import {
			e.Import = base
		}
		return e
	}
	if err != nil {
		return &sandbox.Refusal{Field: "rootfs.base", Message: err.Error(), Position: at}
	}
	if s.Root, err = identifyBind(s.Image.Tree); err != nil {
		return &sandbox.Refusal{Field: "rootfs.base", Message: fmt.Sprintf("%s: %v", s.Image.Tree, err), Position: at, Hint: missingHint(base)}
	}
	return nil
}

func missingHint(base string) string { return (&image.Missing{Base: base}).Hint() }
