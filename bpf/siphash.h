/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SipHash-2-4 of 20 octets, which is what feedback is signed in: two words and
 * a half (Aumasson, Bernstein 2012). The key is two words, its first eight
 * octets first; octets become words in little endian.
 */
#ifndef WEIR_SIPHASH_H
#define WEIR_SIPHASH_H

struct sip {
	__u64 a, b, c, d;
};

static __always_inline __u64 turned(__u64 word, int by)
{
	return word << by | word >> (64 - by);
}

static __always_inline void sip_round(struct sip *s)
{
	s->a += s->b;
	s->b = turned(s->b, 13) ^ s->a;
	s->a = turned(s->a, 32);
	s->c += s->d;
	s->d = turned(s->d, 16) ^ s->c;
	s->a += s->d;
	s->d = turned(s->d, 21) ^ s->a;
	s->c += s->b;
	s->b = turned(s->b, 17) ^ s->c;
	s->c = turned(s->c, 32);
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->d ^= word;
	sip_round(s);
	sip_round(s);
	s->a ^= word;
}

/* `third` is the last four octets. */
static __always_inline __u64 siphash20(const __u64 key[2], __u64 first, __u64 second, __u32 third)
{
	struct sip s = {
		.a = key[0] ^ 0x736f6d6570736575ull,
		.b = key[1] ^ 0x646f72616e646f6dull,
		.c = key[0] ^ 0x6c7967656e657261ull,
		.d = key[1] ^ 0x7465646279746573ull,
	};

	sip_word(&s, first);
	sip_word(&s, second);
	sip_word(&s, 20ull << 56 | third);
	s.c ^= 0xff;
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

#endif
