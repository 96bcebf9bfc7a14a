package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed skillware.py
var skillwareHost string

// entries are what a list of addresses holds here: about as many as a sanctions list.
const entries = 20_000

// skillware measures a tool call of a Python host: each kind of Skillware skill, each way to run it.
func (w *work) skillware(f *figures) error {
	r := &report{}
	defer func() { f.Skillware = r.lines }()
	if err := w.buildCalls(); err != nil { // which gives services a place
		return err
	}
	// What runs without a sandbox has a copy of its own: a skill that writes into its directory would change the bundle of those that are ready.
	root, plain := filepath.Join(w.dir, "skills"), filepath.Join(w.dir, "plain-skills")
	for _, dir := range []string{root, plain} {
		if err := os.CopyFS(dir, os.DirFS("integration/testdata/skillware")); err != nil {
			return err
		}
		if err := manyAddresses(filepath.Join(dir, "finance/address_screening/data/list_many.json")); err != nil {
			return err
		}
	}
	for _, name := range []string{"skillware.py", "skillbox_skillware.py"} {
		if err := copyFile(filepath.Join("bundle/shim", name), filepath.Join(w.dir, name)); err != nil {
			return err
		}
	}
	if err := copyFile("clients/python/skillbox.py", filepath.Join(w.dir, "skillbox.py")); err != nil {
		return err
	}
	invoice := filepath.Join(w.dir, "invoice.csv")
	if err := os.WriteFile(invoice, []byte("item,quantity,price\nscrew,100,0.10\nhammer,2,12.50\n"), 0o644); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond) // files younger than 20 ms are not cached
	times := max(*runs/2, 10)
	const pause = 100 * time.Millisecond
	r.title("a tool call of a host in Python, %d calls each way, in turns, %v between two; load %s", times, pause, load())
	for _, k := range []struct {
		name, skill     string
		params          map[string]any
		inputs, outputs []string
	}{
		{
			"paths of files", "office/invoice_totals",
			map[string]any{"csv_path": invoice, "output_path": filepath.Join(w.dir, "totals.csv")},
			[]string{"csv_path"},
			[]string{"output_path"},
		},
		{"corpus in memory", "compliance/rule_finder", map[string]any{"question": "custody provider segregates assets"}, nil, nil},
		{"JSON data sets", "finance/address_screening", map[string]any{"address": "0x00000000000000000000000000000000000000ab"}, nil, nil},
	} {
		err := w.kind(r, k.name, map[string]any{
			"Client": w.dir, "Shim": filepath.Join(w.dir, "skillware.py"), "Skill": filepath.Join(root, k.skill),
			"Plain": filepath.Join(plain, k.skill), "Command": filepath.Join(w.bin, "skillbox"),
			"Params": k.params, "Inputs": k.inputs, "Outputs": k.outputs, "Times": times, "Pause": pause.Seconds(),
		})
		if err != nil {
			return fmt.Errorf("skillware: %s: %w", k.skill, err)
		}
	}
	return nil
}

// kind measures one skill.
func (w *work) kind(r *report, name string, task map[string]any) error {
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	c := exec.Command("/usr/bin/python3", "-c", skillwareHost)
	// Its service must not leave while the slow ways have their turn.
	c.Env = append(os.Environ(), "SKILLBOX_IDLE=10s")
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(text), &stderr
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	var a struct {
		Import float64
		Times  map[string][]float64
		Starts map[string]map[string]int
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	r.line(a.Import, "ms", "%s: importing skill.py, once", name)
	alone := median(a.Times["plain subprocess"])
	for _, way := range []string{"in process", "plain subprocess", "one-shot", "prepared", "preloaded"} {
		ms := median(a.Times[way])
		note := ""
		if want := map[string]string{"prepared": "prepared", "preloaded": "preloaded"}[way]; want != "" {
			note = fmt.Sprintf(" (%d of %d boxes were that)", a.Starts[way][want], len(a.Times[way])+1)
		}
		r.line(ms, "ms", "%s: %s, median%s", name, way, note)
		if way != "in process" && way != "plain subprocess" {
			r.bar(fmt.Sprintf("%.2f times a plain subprocess", ms/alone), "", false)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// manyAddresses writes a list as large as real ones.
func manyAddresses(path string) error {
	type entry struct {
		Address string `json:"address"`
		Reason  string `json:"reason"`
		Since   string `json:"since"`
	}
	list := make([]entry, entries)
	for i := range list {
		list[i] = entry{fmt.Sprintf("0x%040x", 0x1000+i), "listed", "2024-01-01"}
	}
	text, err := json.Marshal(map[string]any{"name": "many", "entries": list})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
