package main

import "errors"

func foreignCall([]string) (any, error) {
	return nil, errors.New("this machine has no second set of numbers for a program to try")
}
