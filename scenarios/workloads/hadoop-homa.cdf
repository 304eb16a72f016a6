# Sizes of messages of a Hadoop cluster (Facebook) as Homa uses them: the main knots; mean 136 kB.
# Source: github.com/PlatformLab/HomaSimulation, sizeDistributions/Facebook_HadoopDist_All.txt.
# octets  share of flows that are no larger
92 0.0074
271 0.0409
326 0.1375
425 0.223
600 0.4591
800 0.5762
1534 0.6468
7830 0.7082
31946 0.7212
51046 0.816
81565 0.8717
133013 0.907
288520 0.9535
940700 0.9721
2169118 0.987
10000000 1
