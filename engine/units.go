package engine

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// bytes reads a size as docker does: a number, fractions allowed, and b, k, m, g or t, which count in 1024.
func (t text) bytes() (string, error) {
	number := strings.TrimRight(strings.ToLower(t.text), "bkmgti ")
	unit := strings.TrimSpace(strings.ToLower(t.text)[len(number):])
	shift, ok := map[string]uint{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[unit]
	value, isNumber := decimal(number)
	if !ok || !isNumber {
		return "", t.fail(fmt.Sprintf("%q is not a size", t.text), "write 512m or 2g")
	}
	if value.Sign() == 0 {
		return "", t.fail("0 is no limit to docker, and refused here", "leave the key out for the default, or name a size")
	}
	value.Mul(value, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift)))
	whole := new(big.Int).Quo(value.Num(), value.Denom())
	if !whole.IsInt64() {
		return "", t.fail(fmt.Sprintf("%q is too large", t.text), "")
	}
	return whole.String(), nil
}

// cores reads a number of processors, in thousandths.
func (t text) cores() (string, error) {
	value, ok := decimal(t.text)
	if !ok {
		return "", t.fail(fmt.Sprintf("%q is not a number of processors", t.text), "write 2 or 0.5")
	}
	milli := new(big.Rat).Mul(value, big.NewRat(1000, 1))
	switch {
	case value.Sign() == 0:
		return "", t.fail("0 is no limit to docker, and refused here", "leave the key out for the default, or name a number")
	case !milli.IsInt():
		return "", t.fail(fmt.Sprintf("%q is finer than a thousandth of a processor", t.text), "")
	case !milli.Num().IsInt64():
		return "", t.fail(fmt.Sprintf("%q is too large", t.text), "")
	}
	return strconv.FormatFloat(float64(milli.Num().Int64())/1000, 'f', -1, 64), nil
}

// decimal reads digits with at most one point; big.Rat alone would take fractions, exponents and other bases.
func decimal(s string) (*big.Rat, bool) {
	if s == "" || len(s) > 20 || strings.Trim(s, "0123456789.") != "" || s[0] == '.' {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSuffix(s, "."))
}
