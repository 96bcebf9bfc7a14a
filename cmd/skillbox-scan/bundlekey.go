package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"aead.dev/minisign"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/trust"
)

// maxKey is more than minisign's files of keys have, comments included.
const maxKey = 16 << 10

func bundleKeyCommand() *cobra.Command {
	var password string
	var open bool
	c := &cobra.Command{
		Use:   "key [flags] FILE",
		Short: "Make a key to sign bundles with",
		Long: `Make a key as minisign does: the secret one in FILE, which only you may read, and the public one in
FILE.pub, which is printed too. The password that protects the secret key is asked for on the
terminal, or read from --password-file. An existing file is never overwritten.`,
		Example: `  skillbox bundle key signer`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return makeKey(args[0], password, open) },
	}
	c.Flags().StringVar(&password, "password-file", "", "`file` whose first line is the key's password; - for standard input")
	c.Flags().BoolVar(&open, "no-password", false, "write the secret key as it is: who can read the file can sign")
	return c
}

func makeKey(path, passwordFile string, open bool) error {
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		return err
	}
	var text []byte
	if open {
		text, err = secret.MarshalText()
	} else {
		var password string
		if password, err = readPassword(passwordFile, "password for the new key: "); err != nil {
			return err
		}
		if password == "" {
			return &helper.Error{Message: "the password is empty", Hint: "--no-password makes a key without"}
		}
		text, err = minisign.EncryptKey(password, secret)
	}
	if err != nil {
		return err
	}
	publicText, err := public.MarshalText()
	if err != nil {
		return err
	}
	if err := writeFile(path, append(text, '\n'), 0o600, false); err != nil {
		return err
	}
	if err := writeFile(path+".pub", append(publicText, '\n'), 0o644, false); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	fmt.Println(public.String())
	return nil
}

// secretKey reads a secret key of minisign's. One that others can read is no secret.
func secretKey(path, passwordFile string) (key minisign.PrivateKey, err error) {
	f, err := os.Open(path)
	if err != nil {
		return key, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return key, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return key, err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return key, &helper.Error{Message: "others may read or write this secret key", File: path, Hint: "chmod 0600 " + path}
	}
	text = []byte(strings.TrimRight(string(text), "\n")) // minisign ends it with one, which the library does not expect
	if !minisign.IsEncrypted(text) {
		if err := key.UnmarshalText(text); err != nil {
			return key, &helper.Error{Message: "this is no secret key of minisign's", File: path}
		}
		return key, nil
	}
	password, err := readPassword(passwordFile, "password for "+path+": ")
	if err != nil {
		return key, err
	}
	if key, err = minisign.DecryptKey(password, text); err != nil {
		return key, &helper.Error{Message: "the password is not that of this key", File: path}
	}
	return key, nil
}

// publicKey is given as text, or by the file that it is in.
func publicKey(given string) (minisign.PublicKey, error) {
	key, err := trust.ParseKey(given)
	if err == nil {
		return key, nil
	}
	f, openErr := os.Open(given)
	if openErr != nil {
		return key, &helper.Error{Message: fmt.Sprintf("--pubkey %s is neither a public key nor a file", given), Hint: "minisign prints one: RW and 54 more characters"}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return key, err
	}
	if key, err = trust.ParseKey(string(text)); err != nil {
		return key, &helper.Error{Message: "this is no public key of minisign's", File: given}
	}
	return key, nil
}

// readPassword reads one line: of a file, or of the terminal without showing it.
func readPassword(file, prompt string) (string, error) {
	from := os.Stdin
	switch file {
	case "-":
	case "":
		terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return "", &helper.Error{Message: "there is no terminal to ask for the key's password", Hint: "--password-file FILE, or - for standard input"}
		}
		defer terminal.Close()
		restore, err := hideTyping(terminal)
		if err != nil {
			return "", err
		}
		defer restore()
		fmt.Fprint(terminal, prompt)
		from = terminal
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		from = f
	}
	line, err := bufio.NewReader(io.LimitReader(from, maxKey)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// hideTyping keeps a terminal from showing what is typed, until restore.
func hideTyping(terminal *os.File) (restore func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &hidden); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before) // it is gone if that fails
		fmt.Fprintln(terminal)
	}, nil
}
