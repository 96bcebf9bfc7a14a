// Package server is skillboxd's half of the protocol: it takes one Request from a connection, has it granted, compiled, prepared
// and run, and answers with exactly one Result. See package helper for the order of messages.
package server

import (
	"errors"
	"fmt"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/nsjail"
	"skillbox/policy"
	"skillbox/sandbox"
)

// failure words an error of ours for the envelope: refused where policy, bundle or host say no, failed for everything else.
func failure(err error) *helper.Result {
	var (
		wrong   *helper.Error
		refusal *sandbox.Refusal
		inside  *bundle.Error
		many    policy.Errors
		one     *policy.Error
		unheld  *nsjail.VerifyError
		unled   *netpolicy.NoForwarding
		untold  *unrecorded
	)
	switch {
	case errors.As(err, &untold):
		return helper.Failure(helper.Failed, &helper.Error{Message: untold.Error(), Hint: untold.hint()})
	case errors.Is(err, errCanceled):
		canceled := helper.Failure(helper.Canceled, &helper.Error{Message: err.Error()})
		canceled.ExitCode = helper.CodeCanceled
		return canceled
	case errors.As(err, &wrong):
		return helper.Failure(helper.Refused, wrong)
	case errors.As(err, &refusal):
		p := refusal.Position
		return helper.Failure(helper.Refused, &helper.Error{
			Message: refusal.Message, File: p.File, Line: p.Line, Column: p.Column, Field: refusal.Field, Hint: refusal.Hint,
		})
	case errors.As(err, &inside):
		file := inside.File
		if file == "" {
			file = inside.Path
		}
		return helper.Failure(helper.Refused, &helper.Error{
			Message: inside.Message, File: file, Line: inside.Line, Column: inside.Column, Field: inside.Field, Hint: inside.Hint,
		})
	case errors.As(err, &many) && len(many) > 0:
		e := policyError(many[0])
		for _, other := range many[1:] {
			e.Message += "\n" + other.Error()
		}
		return helper.Failure(helper.Refused, e)
	case errors.As(err, &one):
		return helper.Failure(helper.Refused, policyError(one))
	case errors.As(err, &unled):
		return helper.Failure(helper.Failed, &helper.Error{Message: unled.Error(), Field: "network.egress", Hint: unled.Hint})
	case errors.As(err, &unheld):
		return helper.Failure(helper.Failed, &helper.Error{Message: unheld.Error(), Hint: "run `skillbox doctor`; nothing of the skill was started"})
	}
	return helper.Failure(helper.Failed, &helper.Error{Message: err.Error()})
}

func policyError(e *policy.Error) *helper.Error {
	return &helper.Error{Message: e.Message, File: e.File, Line: e.Line, Column: e.Column, Field: e.Field, Hint: e.Hint}
}

func refused(format string, a ...any) *helper.Error {
	return &helper.Error{Message: fmt.Sprintf(format, a...)}
}
