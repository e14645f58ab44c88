"""Signatures by elliptic curves (ECDSA, FIPS 186-5, 6.4.2): whether one was made by whoever has the private key.

To check one takes no secret, so plain arithmetic does, and it need not take the same time for every number. Points are
kept in Jacobian coordinates: (X, Y, Z) stands for (X/Z², Y/Z³), so that only the last step divides. Z = 0 is the point
at infinity. All three curves are y² = x³ - 3x + b over a prime field.
"""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[int, int, int]

_INFINITY: Point = (1, 1, 0)


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of SP 800-186, 3.2.1, over the integers modulo `prime`; `base` has the order `order`."""

    prime: int
    b: int
    order: int
    base: tuple[int, int]

    @property
    def number_bytes(self) -> int:
        """Of a coordinate, and of either half of a signature."""
        return (self.order.bit_length() + 7) // 8

    def holds(self, x: int, y: int) -> bool:
        """Whether there is such a point."""
        p = self.prime
        return 0 <= x < p and 0 <= y < p and (y * y - (x * x * x - 3 * x + self.b)) % p == 0

    def signed(self, public: tuple[int, int], digest: bytes, signature: bytes) -> bool:
        """`public`: a point of the curve. `signature`: both its numbers, each as long as a coordinate."""
        size, order = self.number_bytes, self.order
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        if not (0 < r < order and 0 < s < order):
            return False
        hashed = int.from_bytes(digest, "big") >> max(8 * len(digest) - order.bit_length(), 0)
        inverse = pow(s, -1, order)
        x, _, z = self._sum(hashed * inverse % order, r * inverse % order, public)
        return z != 0 and x * pow(z, -2, self.prime) % self.prime % order == r

    def _sum(self, times_base: int, times_other: int, other: tuple[int, int]) -> Point:
        """times_base · base + times_other · other, doubling once for both."""
        base, added = (*self.base, 1), (*other, 1)
        choices = (_INFINITY, base, added, self._add(base, added))
        total = _INFINITY
        for bit in reversed(range(self.order.bit_length())):
            total = self._double(total)
            total = self._add(total, choices[times_base >> bit & 1 | (times_other >> bit & 1) << 1])
        return total

    def _double(self, point: Point) -> Point:
        p = self.prime
        x, y, z = point
        yy = y * y % p
        shared = 4 * x * yy % p
        slope = 3 * (x - z * z) * (x + z * z) % p
        doubled = (slope * slope - 2 * shared) % p
        return doubled, (slope * (shared - doubled) - 8 * yy * yy) % p, 2 * y * z % p

    def _add(self, one: Point, other: Point) -> Point:
        p = self.prime
        x1, y1, z1 = one
        x2, y2, z2 = other
        if not z1:
            return other
        if not z2:
            return one
        zz1, zz2 = z1 * z1 % p, z2 * z2 % p
        u1, u2 = x1 * zz2 % p, x2 * zz1 % p
        s1, s2 = y1 * zz2 * z2 % p, y2 * zz1 * z1 % p
        if u1 == u2:
            return self._double(one) if s1 == s2 else _INFINITY
        h, slope = u2 - u1, s2 - s1
        hh = h * h % p
        v, hhh = u1 * hh % p, h * hh % p
        x = (slope * slope - hhh - 2 * v) % p
        return x, (slope * (v - x) - s1 * hhh) % p, h * z1 * z2 % p


CURVES = {
    "P-256": Curve(
        prime=2**256 - 2**224 + 2**192 + 2**96 - 1,
        b=0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        base=(
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        ),
    ),
    "P-384": Curve(
        prime=2**384 - 2**128 - 2**96 + 2**32 - 1,
        b=int(
            "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe814112"
            "0314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
            16,
        ),
        order=int(
            "ffffffffffffffffffffffffffffffffffffffffffffffff"
            "c7634d81f4372ddf581a0db248b0a77aecec196accc52973",
            16,
        ),
        base=(
            int(
                "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b98"
                "59f741e082542a385502f25dbf55296c3a545e3872760ab7",
                16,
            ),
            int(
                "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147c"
                "e9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
                16,
            ),
        ),
    ),
    "P-521": Curve(
        prime=2**521 - 1,
        b=int(
            "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e1"
            "56193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
            16,
        ),
        order=int(
            "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa"
            "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409",
            16,
        ),
        base=(
            int(
                "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dba"
                "a14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66",
                16,
            ),
            int(
                "011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c"
                "97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
                16,
            ),
        ),
    ),
}
