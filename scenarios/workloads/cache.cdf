# Sizes of flows of a cache cluster (Facebook): packets, taken as 1460 octets; mean 911 kB.
# Source: github.com/HKUST-SING/TrafficGenerator, conf/CDF_cache.txt, multiplied by 1460.
# octets  share of flows that are no larger
1460 0.36
2920 0.4
10220 0.46
18980 0.5
97820 0.6
194180 0.7
973820 0.78
1946180 0.8
2920000 0.9
3893820 0.99
48666180 1
