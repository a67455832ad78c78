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

// hasCardNumber looks for 13 to 19 digits that pass the Luhn check: bare, or in groups that one character stands between,
// whichever ("4111 1111 1111 1111", with dashes, dots, slashes, no-break spaces, line breaks). Any run of whole groups counts,
// so that digits before it do not hide a card. The groups of a card have 3 digits or more, those of a date and time do not.
func hasCardNumber(s string) bool {
	var groups []string // the last ones, one character apart
	var group []byte    // the one that is being read
	gap := 0            // characters since the last digit
	for _, r := range s + "\n" {
		if '０' <= r && r <= '９' { // of full width, as Chinese and Japanese keyboards write them
			r -= '０' - '0'
		}
		if '0' <= r && r <= '9' {
			if gap > 1 {
				groups = groups[:0]
			}
			group, gap = append(group, byte(r)), 0
			continue
		}
		if gap++; len(group) > 0 {
			groups, group = append(groups, string(group)), group[:0]
			if endsInCard(groups) {
				return true
			}
		}
		if unicode.IsLetter(r) {
			groups = groups[:0]
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
		if len(groups[i]) < 3 {
			return false
		}
	}
	return false
}

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
