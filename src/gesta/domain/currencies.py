"""The currencies of ISO 4217 and how many digits each has after the point.

List one of the maintenance agency as of 2026-01-01. Codes without a minor unit (gold, special
drawing rights, test codes) are not listed, because no amount can be charged in them.
"""

_DIGITS: dict[int, str] = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
    CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS
    GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL
    MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK
    PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS
    TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG""",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
#: Code → digits after the point.
CURRENCIES = {code: digits for digits, codes in _DIGITS.items() for code in codes.split()}
#: The same for codes that were withdrawn. Stored amounts stay readable; new ones are refused.
WITHDRAWN = dict.fromkeys("ANG BGN CUC EEK HRK LTL LVL MRO SLL STD VEF ZMK ZWL".split(), 2) | {
    "BYR": 0
}
