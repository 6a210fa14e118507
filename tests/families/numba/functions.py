# SPDX-License-Identifier: Apache-2.0
from numba import njit

RESULTS = {"total": 4950, "squares": 328350, "evens": 2450, "harmonic": 5.187377517639621}


@njit(cache=True)
def total(n):
    result = 0
    for i in range(n):
        result += i
    return result


@njit(cache=True)
def squares(n):
    result = 0
    for i in range(n):
        result += i * i
    return result


@njit(cache=True)
def evens(n):
    result = 0
    for i in range(0, n, 2):
        result += i
    return result


@njit(cache=True)
def harmonic(n):
    result = 0.0
    for i in range(1, n + 1):
        result += 1 / i
    return result


@njit(cache=True)
def broken(n):
    return n + "no number"
