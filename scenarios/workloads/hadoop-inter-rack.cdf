# Sizes of flows between racks of a Hadoop cluster (Facebook): packets of 1460 octets; mean 4.14 MB.
# Source: github.com/HKUST-SING/TrafficGenerator, conf/CDF_hadoop.txt, multiplied by 1460.
# octets  share of flows that are no larger
1460 0
35040 0.1
43800 0.2
48180 0.4
73000 0.5
77380 0.6
97820 0.7
175200 0.8
233600 0.9
292000 0.95
973820 0.96
9733820 0.97
97333820 0.99
486666180 1
