package helper

import "path/filepath"

// AuditDir is where the audit log of a user's calls lies: root's in /var/log/skillbox/audit, another's in $XDG_STATE_HOME/skillbox/audit, by
// default ~/.local/state; "" where neither that nor HOME says where. getenv is os.Getenv of the user.
func AuditDir(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/var/log/skillbox/audit"
	}
	// A relative path is to be ignored, says the XDG Base Directory Specification.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "skillbox", "audit")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "skillbox", "audit")
	}
	return ""
}

// Ceiling is the file that says what any skill on this host may have at most.
const Ceiling = "/etc/skillbox/host.yaml"

// UsersAuditConfig is what holds of users' own logs where they have no file of their own.
const UsersAuditConfig = "/etc/skillbox/audit.yaml"

// AuditConfig is the file that says how the log in AuditDir is kept: of root's, which is the machine's, the system service's; of another's,
// skillbox/audit.yaml in $XDG_CONFIG_HOME, by default ~/.config. Where neither that nor HOME says where, it is the machine's for all users.
func AuditConfig(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/etc/skillbox/service.yaml"
	}
	if config := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(config) {
		return filepath.Join(config, "skillbox", "audit.yaml")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "skillbox", "audit.yaml")
	}
	return UsersAuditConfig
}
