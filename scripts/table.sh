#!/usr/bin/env bash
# Prints what it reads, fields with tabs between them, as a table under the titles that it is given.
set -euo pipefail
{
    (IFS=$'\t' && printf '%s\n' "$*")
    cat
} | awk -F '\t' '
    { for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } fields[NR] = NF }
    END {
        for (row = 1; row <= NR; row++)
            for (i = 1; i <= fields[row]; i++)
                if (i < fields[row]) printf "%-" width[i] + 2 "s", cell[row, i]; else print cell[row, i]
    }'
