package httpapi

import (
	"errors"
	"strings"
	"unicode"
)

var (
	errControl    = errors.New("must not have control characters other than line breaks")
	errCardNumber = errors.New("must not have a card number")
)

// checkText refuses what must not be stored in free text: control characters, which forge log lines and terminals, and
// card numbers, which would bring the whole database under PCI DSS.
func checkText(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' }) {
		return errControl
	}
	if hasCardNumber(s) {
		return errCardNumber
	}
	return nil
}

// hasCardNumber looks for 13 to 19 digits that pass the Luhn check, bare or in groups separated by single spaces or
// dashes ("4111 1111 1111 1111"). Any run of whole groups counts, so that digits before it do not hide a card.
func hasCardNumber(s string) bool {
	var groups []string // adjacent groups of digits
	for i := 0; i < len(s); {
		if !isDigit(s[i]) {
			separator := (s[i] == ' ' || s[i] == '-') && i+1 < len(s) && isDigit(s[i+1])
			if !separator {
				groups = groups[:0]
			}
			i++
			continue
		}
		start := i
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		groups = append(groups, s[start:i])
		if endsInCard(groups) {
			return true
		}
	}
	return false
}

// endsInCard reports whether the last groups together are a card number.
func endsInCard(groups []string) bool {
	digits := ""
	for i := len(groups) - 1; i >= 0; i-- {
		digits = groups[i] + digits
		if len(digits) > 19 {
			return false
		}
		if len(digits) >= 13 && luhn(digits) {
			return true
		}
	}
	return false
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// luhn is the check of ISO/IEC 7812-1 Annex B.
func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
