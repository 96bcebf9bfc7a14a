package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/output"
	"skillbox/sandbox"
	"skillbox/wire"
)

// maxResult is the largest JSON value that a skill's result file may hold: it travels in a frame.
const maxResult = 2 << 20

// sendResult answers with what a run came to. Each part of it is bounded; should the whole be too long for a frame all the same, the
// parts that the skill can make long are left out: they must not cost the caller the result.
func sendResult(conn *wire.Conn, result *helper.Result) error {
	err := conn.Send(helper.Reply{Result: result})
	if !errors.Is(err, wire.ErrProtocol) {
		return err
	}
	result.Result, result.Outputs, result.Denials = nil, nil, nil
	result.Warnings = []string{"the result was too large for one message: the skill's JSON, the list of its output files, denials and other warnings were left out"}
	result.Normalize()
	return conn.Send(helper.Reply{Result: result})
}

// takeChanges tells what the skill changed in the copy of its bundle.
func takeChanges(box *sandbox.Box, f *files, result *helper.Result) {
	if box.Changed() == nil || f.bundle == nil {
		return
	}
	list, more, err := output.Changes(box.Changed(), f.bundle)
	for _, c := range list {
		result.Changes = append(result.Changes, helper.Change(c))
	}
	if more {
		result.Warnings = append(result.Warnings, "the skill changed more of its bundle than changes lists")
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
	}
}

// takeResult puts the skill's result file into the envelope; one that is not JSON is a warning, for the skill is not our failure.
func takeResult(box *sandbox.Box, result *helper.Result) {
	data, err := box.ReadResult(maxResult)
	// Package json takes any bytes inside a string; a caller's parser of the envelope would not.
	if err == nil && len(data) > 0 && !(json.Valid(data) && utf8.Valid(data)) {
		err = errors.New("the result file does not hold one JSON value")
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
		return
	}
	if len(data) == 0 {
		return
	}
	result.Result = data
}

// takeOutputs streams /output to the client, if it asked for it.
func takeOutputs(box *sandbox.Box, d *decision, f *files, result *helper.Result) {
	if f.outputs == nil {
		return
	}
	items, skipped, err := output.Collect(box.Outputs(), f.outputs, output.Limits{Files: d.plan.Limits.FilesCount, Bytes: d.plan.Limits.FilesBytes})
	for _, item := range items {
		result.Outputs = append(result.Outputs, helper.Output{Name: item.Name, Bytes: item.Bytes, SHA256: item.SHA256})
	}
	for _, s := range skipped {
		result.Warnings = append(result.Warnings, s.String())
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
	}
	if err := f.outputs.Close(); err != nil {
		result.Warnings = append(result.Warnings, fmt.Sprintf("outputs: %v", err))
	}
}

// identified fills in who ran under what.
func identified(result *helper.Result, id string, d *decision, tree *bundle.Tree) *helper.Result {
	result.Normalize()
	result.ID = id
	if d == nil {
		return result
	}
	if d.plan != nil {
		for _, w := range d.plan.Warnings {
			if !slices.Contains(result.Warnings, w) {
				result.Warnings = append(result.Warnings, w)
			}
		}
		result.Sandbox.Mode, result.Sandbox.Layers = d.plan.Mode, d.plan.Layers
	}
	result.Policy, result.Trust = d.policy, d.trust
	explained(result, d)
	if d.bundle != nil {
		result.Skill.Name = d.bundle.Name
	}
	if tree != nil {
		result.Skill.Digest = tree.Digest
	}
	return result
}
