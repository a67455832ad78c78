package stripe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bojanz/currency"
)

// taken are the currencies that Stripe charges in (https://docs.stripe.com/currencies#presentment-currencies) and that ISO 4217
// still has, but for two. UGX is on Stripe's list of currencies without decimals, and on that of those with two invented ones:
// a factor of 100 is not to be guessed. STD became STN at a thousand to one, and Stripe does not say which of them it means.
var taken = strings.Fields(`
	AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BWP BYN BZD CAD CDF CHF CLP CNY COP CRC
	CVE CZK DJF DKK DOP DZD EGP ETB EUR FJD FKP GBP GEL GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR ISK JMD JOD JPY KES KGS
	KHR KMF KRW KWD KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR
	PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SEK SGD SHP SLE SOS SRD SZL THB TJS TND TOP TRY TTD TWD TZS UAH
	USD UYU UZS VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW`)

// Where Stripe's smallest unit of a currency is not ISO 4217's, or not every amount is taken
// (https://docs.stripe.com/currencies#minor-units and #special-cases).
var (
	noDecimals    = strings.Fields("BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF")
	threeDecimals = strings.Fields("BHD JOD KWD OMR TND") // the last digit must be 0
	// ISK has no decimals any more, in ISO 4217 and at Stripe, which keeps to two for old clients' sake: 5 kr are 500.
	twoInvented = strings.Fields("ISK")
)

// units returns by what an amount in ISO 4217 minor units is multiplied and then divided to be in Stripe's, and what an amount
// in Stripe's must be a multiple of.
func units(code string) (times, by, step int64, err error) {
	digits, ok := currency.GetDigits(code)
	switch {
	case !ok || !slices.Contains(taken, code):
	case slices.Contains(noDecimals, code) && digits == 0:
		return 1, 1, 1, nil
	case slices.Contains(noDecimals, code) && digits == 2: // MGA, whose iraimbilanja (1/5) nobody coins
		return 1, 100, 1, nil
	case slices.Contains(twoInvented, code) && digits == 0:
		return 100, 1, 100, nil
	case slices.Contains(threeDecimals, code) && digits == 3:
		return 1, 1, 10, nil
	case digits == 2:
		return 1, 1, 1, nil
	}
	return 0, 0, 0, fmt.Errorf("stripe: amounts of currency %q cannot be expressed", code)
}

// toStripe converts an amount in minor units of an ISO 4217 currency, exactly or not at all.
func toStripe(minor int64, code string) (int64, error) {
	times, by, step, err := units(code)
	if err != nil {
		return 0, err
	}
	if minor <= 0 || minor > math.MaxInt64/times || minor%by != 0 || minor*times/by%step != 0 {
		return 0, fmt.Errorf("stripe: the amount %d %s cannot be expressed", minor, code)
	}
	return minor * times / by, nil
}

// fromStripe converts an amount of Stripe's, whose currency is in small letters, and returns the currency in capitals.
func fromStripe(amount int64, small string) (minor int64, code string, err error) {
	code = strings.ToUpper(small)
	times, by, _, err := units(code)
	if err != nil || code == small {
		return 0, "", fmt.Errorf("stripe: currency %q: %w", small, err)
	}
	if amount <= 0 || amount > math.MaxInt64/by || amount*by%times != 0 {
		return 0, "", fmt.Errorf("stripe: the amount %d %s cannot be expressed", amount, code)
	}
	return amount * by / times, code, nil
}
