package alipay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxAmount is the most that Alipay takes in one payment, in fen: CNY 100,000,000 (alipay.trade.page.pay, total_amount).
const maxAmount = 10_000_000_000

var errAmount = errors.New("an amount must be yuan with at most two decimals, from 0.01 to 100000000.00")

// yuan writes fen (minor units of CNY) the way Alipay wants: 1299 is "12.99".
func yuan(fen int64) string { return fmt.Sprintf("%d.%02d", fen/100, fen%100) }

// fen reads yuan, exactly: digits, and at most two decimals ("88.88", "20", "1.5"). Signs, exponents, spaces, leading zeros
// and everything else are refused, and no float is involved: 1.15 is 115, not 114.
func fen(yuan string) (int64, error) {
	whole, decimals, point := strings.Cut(yuan, ".")
	if len(whole) == 0 || len(whole) > 9 || len(whole) > 1 && whole[0] == '0' || point && (len(decimals) == 0 || len(decimals) > 2) {
		return 0, errAmount
	}
	digits := whole + decimals + "00"[:2-len(decimals)]
	if strings.Trim(digits, "0123456789") != "" {
		return 0, errAmount
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > maxAmount {
		return 0, errAmount
	}
	return n, nil
}
