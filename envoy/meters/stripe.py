#!/usr/bin/env python3
"""Tells Stripe what customers used in a month: a meter event for each, from the export of the backend.

    backend usage export --month 2026-11 --format json |
        STRIPE_API_KEY=sk_... python3 stripe.py --month 2026-11 --event api_units --customers customers.csv

customers.csv has lines of a subscriber and the id of its Stripe customer. A subscriber that it lacks is named on standard error, and the
script ends with 1 after all others are told. Run again within a day, it changes nothing: Stripe knows the identifiers for 24 hours.
"""

import argparse
import collections
import csv
import datetime
import hashlib
import json
import os
import sys
import urllib.parse
import urllib.request


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--month", required=True, help="the month of the export, such as 2026-11")
    parser.add_argument("--event", required=True, help="event_name of the meter")
    parser.add_argument("--customers", required=True, help="CSV file: subscriber, id of the Stripe customer")
    parser.add_argument("--api", default="https://api.stripe.com", help="address of the API [default: %(default)s]")
    options = parser.parse_args()
    key = os.environ.get("STRIPE_API_KEY") or sys.exit("STRIPE_API_KEY is not set")

    first = datetime.datetime.strptime(options.month, "%Y-%m").replace(tzinfo=datetime.timezone.utc)
    end = (first + datetime.timedelta(days=31)).replace(day=1)
    # The last second of the month, or now: Stripe takes events of the last 35 days, and none of the future.
    timestamp = min(int(end.timestamp()) - 1, int(datetime.datetime.now(datetime.timezone.utc).timestamp()))

    with open(options.customers, newline="") as file:
        customers = {row[0]: row[1] for row in csv.reader(file) if row}
    units = collections.Counter()
    for row in json.load(sys.stdin):
        units[row["subscriber"]] += row["units"]

    missing = []
    for subscriber, value in sorted(units.items()):
        # Requests of clients without a subscriber are nobody's.
        if not subscriber or not value:
            continue
        if subscriber not in customers:
            missing.append(subscriber)
            continue
        digest = hashlib.sha256(f"{options.event} {subscriber}".encode()).hexdigest()[:32]
        fields = {
            "event_name": options.event,
            "payload[stripe_customer_id]": customers[subscriber],
            "payload[value]": str(value),
            "identifier": f"weir-{options.month}-{digest}",
            "timestamp": str(timestamp),
        }
        request = urllib.request.Request(
            f"{options.api}/v1/billing/meter_events",
            data=urllib.parse.urlencode(fields).encode(),
            headers={"Authorization": f"Bearer {key}", "Idempotency-Key": fields["identifier"]},
        )
        with urllib.request.urlopen(request, timeout=30):
            print(f"{subscriber}: {value}")
    for subscriber in missing:
        print(f"{subscriber}: {options.customers} has no customer for it", file=sys.stderr)
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
