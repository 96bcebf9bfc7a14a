package client

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	programs "os/exec"
	"strings"

	"skillbox/helper"
	"skillbox/image"
)

// ImageDir is the caller's store of images; "" for none.
func ImageDir() string { return image.DefaultDir() }

// ImportImage takes the image into the store that a refusal says lies here (helper.Error.Import), so that the same call can be made again.
// The program skillbox-image does it, with the caller's rights.
func ImportImage(ctx context.Context, base string) error {
	program, err := helper.Find("skillbox-image")
	if program = cmp.Or(os.Getenv("SKILLBOX_IMAGE"), program); program == "" {
		return fmt.Errorf("client: import %s: %w", base, err)
	}
	c := programs.CommandContext(ctx, program, "image", "import", "--quiet", "--", base)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		lines, hint, _ := strings.Cut(strings.TrimSpace(said.String()), "\nskillbox: hint: ")
		return &helper.Error{Message: fmt.Sprintf("%s cannot be imported: %s", base, cmp.Or(strings.TrimPrefix(lines, "skillbox: "), err.Error())), Field: "rootfs.base", Hint: hint}
	}
	return nil
}

// importFor imports what a refusal names; again is that the call is to be made once more.
func importFor(ctx context.Context, e *helper.Error) (again bool, err error) {
	if e == nil || e.Import == "" {
		return false, nil
	}
	return true, ImportImage(ctx, e.Import)
}
