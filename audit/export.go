package audit

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// SkillHubRow is a row of the audit_log table of a SkillHub registry: exactly its columns, but for the number that it gives itself.
type SkillHubRow struct {
	ActorUserID *string   `json:"actor_user_id"` // the caller's user id here; who imports it knows the registry's
	Action      string    `json:"action"`        // skill.run
	TargetType  string    `json:"target_type"`   // skill
	TargetID    *int64    `json:"target_id"`     // null: it is a number of the registry's; detail_json has the digest
	RequestID   string    `json:"request_id"`    // the run
	ClientIP    *string   `json:"client_ip"`     // null: callers are processes of this machine
	UserAgent   string    `json:"user_agent"`    // skillbox, and the caller's name for itself
	Detail      *Run      `json:"detail_json"`
	CreatedAt   time.Time `json:"created_at"`
}

// SkillHub makes one row of a run.
func (r *Run) SkillHub() SkillHubRow {
	row := SkillHubRow{Action: "skill.run", TargetType: "skill", RequestID: r.ID, UserAgent: "skillbox", Detail: r, CreatedAt: r.Time}
	if r.Caller != nil {
		uid := strconv.Itoa(r.Caller.UID)
		row.ActorUserID = &uid
		row.UserAgent += " (" + r.Caller.Process + ")"
	}
	return row
}

// ocsfVersion is that of the schema which the numbers below are from: schema.ocsf.io.
const ocsfVersion = "1.3.0"

// OCSF maps an event to the Open Cybersecurity Schema Framework. What has no place there is in unmapped.
func (e *Event) OCSF() map[string]any {
	class, activity, special := e.ocsfClass()
	out := object{
		"class_uid": class, "category_uid": class / 1000, "activity_id": activity, "type_uid": class*100 + activity,
		"severity_id": 1, "status_id": 1, "time": e.Time.UnixMilli(), "message": e.Summary(),
		"metadata": object{
			"version": ocsfVersion, "uid": strconv.FormatUint(e.Seq, 10), "event_code": e.Kind,
			"product": object{"name": "skillbox", "vendor_name": "skillbox"}, "profiles": []string{"host"},
		},
		"device":   object{"hostname": e.Host, "type_id": 0},
		"unmapped": object{"detail": e.Detail, "skill": e.Skill, "mono": e.Mono},
	}
	if e.Caller != nil {
		out["actor"] = object{"process": object{
			"name": e.Caller.Process, "pid": e.Caller.PID, "user": object{"uid": strconv.Itoa(e.Caller.UID), "type_id": 0},
		}}
	}
	metadata := out["metadata"].(object)
	if e.Run != "" {
		metadata["correlation_uid"] = e.Run
	}
	if activity == otherActivity {
		out["activity_name"] = e.Kind // demanded where the number says nothing
	}
	if o := e.Outcome(); o != nil {
		metadata["profiles"] = []string{"host", "security_control"} // which demands action_id
		switch o.Verdict {
		case "denied":
			out["severity_id"], out["status_id"], out["action_id"], out["disposition_id"] = 3, 2, 2, 2 // medium, failure, denied, blocked
		case "failed":
			out["status_id"], out["action_id"], out["disposition_id"] = 2, 0, 0 // nobody decided
		default:
			out["action_id"], out["disposition_id"] = 1, 1
		}
	}
	for key, value := range special {
		out[key] = value
	}
	return out
}

// otherActivity is the activity of what has no number of its own.
const otherActivity = 99

// ocsfClass returns the class, the activity, and the object that the class is about.
func (e *Event) ocsfClass() (class, activity int, special object) {
	const process, file, kernel, network, dns, lifecycle = 1007, 1001, 1003, 4001, 4003, 6002
	switch d := e.Detail.(type) {
	case Exec:
		return process, 1, object{"process": object{"pid": d.PID, "name": base(d.Path), "cmd_line": strings.Join(d.Argv, " "), "file": fileObject(d.Path)}}
	case File:
		activities := map[string]int{"open": 14, "create": 1, "directory": 1, "write": 3, "remove": 4, "rename": 5, "mode": 7, "owner": 7}
		if activity = activities[d.Op]; activity == 0 {
			activity = otherActivity
		}
		return file, activity, object{"file": fileObject(d.Path)}
	case Syscall:
		return kernel, 4, object{"kernel": object{"name": d.Name, "type_id": 2, "system_call": d.Name}}
	case DNS:
		if activity = 1; len(d.Addresses) > 0 {
			activity = 6 // the query and its answer
		}
		return dns, activity, object{"query": object{"hostname": d.Name, "type": d.Type}, "answers": answers(d.Addresses)}
	case Connection:
		if activity = map[string]int{"connect": 1, "accept": 1, "send": 6}[d.Op]; activity == 0 {
			activity = otherActivity
		}
		switch d.Verdict {
		case Denied:
			activity = 5
		case Failed:
			activity = 4
		}
		return network, activity, object{
			"dst_endpoint":    d.endpoint(),
			"connection_info": object{"protocol_name": d.Proto, "direction_id": 2},
			"traffic":         object{"bytes_out": d.BytesOut, "bytes_in": d.BytesIn},
		}
	case Started:
		activity = 3
	case Ended:
		activity = 4
	default:
		activity = otherActivity
	}
	return lifecycle, activity, object{"app": e.product()}
}

// product is the skill; who made it, a bundle does not say.
func (e *Event) product() object {
	p := object{"name": orNone(e.skillName(), "a skill"), "vendor_name": "unknown"}
	if e.Skill != nil && e.Skill.Digest != "" {
		p["uid"] = e.Skill.Digest
	}
	return p
}

// endpoint has only what is known, and an address as ip only where it is one: a socket's path is a name.
func (d *Connection) endpoint() object {
	to := object{}
	if _, err := netip.ParseAddr(d.Address); err == nil {
		to["ip"] = d.Address
	} else {
		to["name"] = orNone(d.Address, "unknown")
	}
	if d.Name != "" {
		to["hostname"] = d.Name
	}
	if d.Port > 0 {
		to["port"] = d.Port
	}
	return to
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func fileObject(path string) object {
	return object{"name": base(path), "path": path, "type_id": 0}
}

func answers(addresses []string) []object {
	all := make([]object, len(addresses))
	for i, a := range addresses {
		all[i] = object{"rdata": a}
	}
	return all
}
