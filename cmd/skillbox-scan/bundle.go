package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/trust"
)

// signing are the flags of the commands about digests and signatures.
type signing struct {
	policy, signature, key, password string
	pubkeys                          []string
	maxFiles                         int
	maxBytes                         int64
	json, statement, force           bool
}

func (s *signing) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&s.policy, "policy", "p", "", "policy `file` that the signature is about (default: none, which grants the defaults)")
	f.IntVar(&s.maxFiles, "max-files", 0, "most `files` that a bundle may have (default 10000)")
	f.Int64Var(&s.maxBytes, "max-bytes", 0, "most `bytes` that a bundle may have (default 512 MiB)")
	f.BoolVar(&s.json, "json", false, "print one JSON object")
}

func (s *signing) registerFile(c *cobra.Command) {
	c.Flags().StringVar(&s.signature, "signature", "", "`file` of the signature (default: BUNDLE"+trust.Suffix+", beside the bundle)")
}

func bundleDigestCommand() *cobra.Command {
	var s signing
	c := &cobra.Command{
		Use:   "digest [flags] BUNDLE",
		Short: "Print the digest that names a bundle's contents",
		Long: `Print the digest of BUNDLE, which is what --require-digest and the host's lists name. It covers
names, modes, links and contents of everything in it. With --statement print what a signature is
made of, so that minisign can verify one too.`,
		Example: `  skillbox bundle digest skills/word-count
  skillbox exec --require-digest "$(skillbox bundle digest skills/word-count)" skills/word-count
  skillbox bundle digest --statement --policy policy.yaml skills/word-count > statement
  minisign -Vm statement -x skills/word-count` + trust.Suffix + ` -p signer.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			statement, err := s.about(args[0])
			switch {
			case err != nil:
				return err
			case s.statement:
				_, err = os.Stdout.Write(statement.Bytes())
				return err
			case s.json:
				return printJSON(map[string]string{"name": statement.Name, "digest": statement.Bundle, "policy_digest": statement.Policy})
			}
			fmt.Println(statement.Bundle)
			return nil
		},
	}
	s.register(c)
	c.Flags().BoolVar(&s.statement, "statement", false, "print the statement that is signed, instead of the digest")
	c.ValidArgsFunction = oneDirectory
	return c
}

func bundleSignCommand() *cobra.Command {
	var s signing
	c := &cobra.Command{
		Use:   "sign --key FILE [flags] BUNDLE",
		Short: "Sign a bundle, for one policy",
		Long: `Sign BUNDLE as it is now, to be run under the policy as it says now, by a secret key of
minisign's. The signature is a file beside the bundle, which minisign can verify too. Where the
key is protected its password is asked for on the terminal, or read from --password-file.`,
		Example: `  skillbox bundle sign --key ~/.minisign/minisign.key --policy policy.yaml skills/word-count`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return s.sign(args[0]) },
	}
	s.register(c)
	s.registerFile(c)
	c.Flags().StringVar(&s.key, "key", "", "`file` with the secret key")
	c.Flags().StringVar(&s.password, "password-file", "", "`file` whose first line is the key's password; - for standard input")
	c.Flags().BoolVar(&s.force, "force", false, "replace a signature that is there")
	c.ValidArgsFunction = oneDirectory
	return c
}

func bundleVerifyCommand() *cobra.Command {
	var s signing
	c := &cobra.Command{
		Use:   "verify --pubkey KEY [flags] BUNDLE",
		Short: "Say whether a key has signed a bundle, for one policy",
		Long: `Say whether BUNDLE as it is now was signed, to be run under the policy as it says now, by one of
the keys. KEY is the text of a public key, or a .pub file of minisign's.

Exit code: 0 if it was, 1 if not, 125 if that could not be found out.`,
		Example: `  skillbox bundle verify --pubkey signer.pub --policy policy.yaml skills/word-count`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return s.verify(args[0]) },
	}
	s.register(c)
	s.registerFile(c)
	c.Flags().StringArrayVar(&s.pubkeys, "pubkey", nil, "public `KEY`, as text or a file; repeatable")
	c.ValidArgsFunction = oneDirectory
	return c
}

func oneDirectory(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// about reads the bundle and the policy, and says what a signature of them says.
func (s *signing) about(path string) (statement trust.Statement, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return statement, err
	}
	defer dir.Close()
	p := policy.Default()
	if s.policy != "" {
		text, err := os.ReadFile(s.policy)
		if err != nil {
			return statement, err
		}
		if p, err = policy.Parse(s.policy, text); err != nil {
			return statement, err
		}
	}
	b, err := bundle.Read(dir)
	if err != nil {
		return statement, plainly(err)
	}
	tree, err := bundle.Digest(context.Background(), dir, bundle.Limits{Files: s.maxFiles, Bytes: s.maxBytes}, nil) // what is signed is read
	if err != nil {
		return statement, plainly(err)
	}
	return trust.Statement{Name: b.Name, Bundle: tree.Digest, Policy: p.Digest()}, nil
}

func (s *signing) sign(path string) error {
	if s.key == "" {
		return &helper.Error{Message: "no key is named", Hint: "--key FILE; `skillbox bundle key FILE` makes one"}
	}
	key, err := secretKey(s.key, s.password)
	if err != nil {
		return err
	}
	statement, err := s.about(path)
	if err != nil {
		return err
	}
	to := s.signature
	if to == "" {
		if to, err = client.SignatureOf(path); err != nil {
			return err
		}
	}
	if err := writeFile(to, trust.Sign(key, statement, time.Now().UTC().Format(time.RFC3339)), 0o644, s.force); err != nil {
		return err
	}
	if s.json {
		return printJSON(map[string]string{"signature": to, "key_id": trust.KeyID(key.ID()), "name": statement.Name, "digest": statement.Bundle, "policy_digest": statement.Policy})
	}
	fmt.Println(to)
	return nil
}

// verified is what bundle verify found.
type verified struct {
	Valid   bool   `json:"valid"`
	KeyID   string `json:"key_id"`
	Comment string `json:"trusted_comment"` // of whoever signed, once valid
	Why     string `json:"why,omitempty"`
	Digest  string `json:"digest"`
	Policy  string `json:"policy_digest"`
}

func (s *signing) verify(path string) error {
	if len(s.pubkeys) == 0 {
		return &helper.Error{Message: "no key is named", Hint: "--pubkey with the text of a public key, or a .pub file of minisign's"}
	}
	statement, err := s.about(path)
	if err != nil {
		return err
	}
	text, err := s.read(path)
	if err != nil {
		return err
	}
	found := verified{Digest: statement.Bundle, Policy: statement.Policy}
	signature, err := trust.ParseSignature(text)
	if err != nil {
		found.Why = err.Error()
		return s.tell(found)
	}
	found.KeyID, found.Why = trust.KeyID(signature.KeyID), "it is of another bundle or another policy, or by another key"
	for _, one := range s.pubkeys {
		key, err := publicKey(one)
		if err != nil {
			return err
		}
		if signature.By(key, statement) {
			found.Valid, found.Why, found.Comment = true, "", signature.Comment()
		}
	}
	return s.tell(found)
}

func (s *signing) read(path string) ([]byte, error) {
	if s.signature != "" {
		f, err := client.OpenSignature(s.signature)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, trust.MaxSignature+1))
	}
	f, err := client.FindSignature(path)
	if err == nil && f == nil {
		err = &helper.Error{Message: "there is no signature of " + path, Hint: "--signature FILE names one that lies elsewhere"}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, trust.MaxSignature+1))
}

// tell shows what was found. Comments are anybody's: whoever signs writes what they like.
func (s *signing) tell(found verified) error {
	switch {
	case s.json:
		if err := printJSON(found); err != nil {
			return err
		}
	case found.Valid:
		fmt.Printf("valid: signed by key %s\nbundle %s\npolicy %s\ncomment %+q\n", found.KeyID, found.Digest, found.Policy, found.Comment)
	default:
		cli.Complain(fmt.Errorf("the signature does not hold: %s", found.Why))
	}
	if !found.Valid {
		return cli.Exit(1)
	}
	return nil
}

func printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}

// plainly words what is wrong with a bundle.
func plainly(err error) error {
	var inside *bundle.Error
	if errors.As(err, &inside) {
		return &helper.Error{Message: inside.Error(), Hint: inside.Hint}
	}
	return err
}

// writeFile makes a file that is there as a whole or not at all. An existing one is replaced only if that is meant.
func writeFile(path string, content []byte, mode fs.FileMode, replace bool) (err error) {
	if _, err := os.Lstat(path); err == nil && !replace {
		return &helper.Error{Message: path + " exists", Hint: "--force replaces it"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".skillbox-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	if err := unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, flags); err != nil {
		return &os.PathError{Op: "write", Path: strings.TrimSpace(path), Err: err}
	}
	return nil
}
