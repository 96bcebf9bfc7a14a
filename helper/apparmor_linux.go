package helper

import (
	"errors"
	"os"
	"strings"
)

// AppArmorProfile is where the packages put the profile that lets skillbox and skillboxd make user namespaces.
const AppArmorProfile = "/etc/apparmor.d/skillboxd"

// appArmorRefuses looks for the restriction of Ubuntu from 23.10 on, before it strikes: a user namespace is made there, and gives no capabilities,
// so that some later step fails for no reason that one could see.
func appArmorRefuses() error {
	restriction, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if errors.Is(err, os.ErrNotExist) {
		return nil // not this kernel's
	}
	label, labelErr := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil || labelErr != nil {
		return nil // what cannot be read decides nothing; the attempt does
	}
	_, err = os.Stat(AppArmorProfile)
	return judgeAppArmor(string(restriction), string(label), err == nil)
}

// judgeAppArmor knows from our own label whether a profile was found for us: one that is "(unconfined)" has a name all the same.
func judgeAppArmor(restriction, label string, packaged bool) error {
	if strings.TrimSpace(restriction) != "1" || strings.TrimSpace(strings.TrimRight(label, "\x00")) != "unconfined" {
		return nil
	}
	e := &Error{
		Message: "AppArmor lets only programs with a profile make user namespaces here (kernel.apparmor_restrict_unprivileged_userns=1), and none is loaded for skillbox",
		Hint:    "`skillbox doctor` prints a profile and how to load it",
	}
	if packaged {
		e.Hint = "sudo apparmor_parser -r " + AppArmorProfile
	}
	return e
}
