// One case of `make truth` in ns-3; `main.rs` beside this file plays the same in this simulator.
//
// Problem   Two simulators can be compared only where both were given the same things.
// Approach  Both read the same command line, word for word, build the same dumbbell from it, count
//           payload between the same two instants, and print the same lines.
// Promises  Same command line, same lines: nothing here draws a random number.
// Not here  The cases and what is asked of them: `scripts/truth`. Why things are set as they are:
//           `docs/results/truth.md`.
//
// For ns-3.37, Debian 12's. ns-3 is under the GPL, version 2: this is linked with it where it is played
// and nowhere else, and nothing of it is shipped.

#include "ns3/boolean.h"
#include "ns3/bulk-send-helper.h"
#include "ns3/command-line.h"
#include "ns3/config.h"
#include "ns3/data-rate.h"
#include "ns3/double.h"
#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/ipv4-global-routing-helper.h"
#include "ns3/ipv4-interface-container.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/nstime.h"
#include "ns3/on-off-helper.h"
#include "ns3/packet-sink-helper.h"
#include "ns3/packet-sink.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/queue-disc.h"
#include "ns3/queue-size.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

// A name of its own: ns-3 has a `Queue`, too.
namespace truth
{

// Octets of TCP's and UDP's payload in an IP packet of 1500, and of that packet on the wire: PPP has 2.
constexpr uint32_t kSegment = 1460;
constexpr uint32_t kDatagram = 1472;
constexpr uint32_t kWire = 1502;
// Propagation between the switches, from the right one to a receiver, and a UDP flow's round trip.
constexpr uint64_t kMiddleUs = 500;
constexpr uint64_t kRightUs = 100;
constexpr uint64_t kUdpTripUs = 10000;
// Hosts' links are so many times as fast as the one between the switches.
constexpr uint64_t kAccess = 10;
// Packets that every other port holds: as many as ever come.
constexpr uint32_t kRoom = 100000;
// Of a port, one packet is on the wire and one in the device; the others are in the queue disc.
constexpr uint32_t kBelow = 2;
constexpr uint16_t kPort = 5000;

std::vector<uint64_t>
Numbers(const std::string& text)
{
    std::vector<uint64_t> numbers;
    std::istringstream stream(text);
    std::string part;
    while (std::getline(stream, part, ','))
    {
        if (!part.empty())
        {
            numbers.push_back(std::stoull(part));
        }
    }
    return numbers;
}

// TCP as this project's: docs/results/truth.md says why each is set.
void
SetDefaults(const std::string& cc, const std::string& recovery, uint32_t mark)
{
    const std::string type = cc == "reno" ? "LinuxReno" : cc == "cubic" ? "Cubic" : "Dctcp";
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::Tcp" + type));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       StringValue(recovery == "prr" ? "ns3::TcpPrrRecovery"
                                                     : "ns3::TcpClassicRecovery"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(6 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", StringValue("40ms"));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(true));
    // The timeout is SRTT + max(granularity, 4 deviations), and at least MinRto.
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", StringValue("200ms"));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", StringValue("200ms"));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(mark > 0 ? "On" : "Off"));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Config::SetDefault("ns3::TcpCubic::FastConvergence", BooleanValue(true));
    Config::SetDefault("ns3::TcpCubic::Beta", DoubleValue(0.7));
    Config::SetDefault("ns3::TcpCubic::C", DoubleValue(0.4));
    Config::SetDefault("ns3::TcpDctcp::DctcpShiftG", DoubleValue(0.0625));
    // RED that looks at the queue of this moment and strikes all or nothing: a threshold.
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0));
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(mark));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(mark));
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
}

NetDeviceContainer
Connect(Ptr<Node> a, Ptr<Node> b, uint64_t bps, uint64_t delayNs)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(bps)));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(delayNs)));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    return link.Install(a, b);
}

// A queue disc of so many packets; it marks if `marks`.
Ptr<QueueDisc>
InstallDisc(Ptr<NetDevice> device, uint32_t packets, bool marks)
{
    TrafficControlHelper control;
    const std::string size = std::to_string(packets) + "p";
    control.SetRootQueueDisc(marks ? "ns3::RedQueueDisc" : "ns3::FifoQueueDisc",
                             "MaxSize",
                             StringValue(size));
    return control.Install(device).Get(0);
}

struct Counts
{
    std::vector<uint64_t> octets;
    uint64_t drops = 0;
    uint64_t marks = 0;
};

Counts
Count(const std::vector<Ptr<PacketSink>>& sinks, Ptr<QueueDisc> middle)
{
    Counts counts;
    for (const auto& sink : sinks)
    {
        counts.octets.push_back(sink->GetTotalRx());
    }
    counts.drops = middle->GetStats().nTotalDroppedPackets;
    counts.marks = middle->GetStats().nTotalMarkedPackets;
    return counts;
}

} // namespace truth

int
main(int argc, char* argv[])
{
    uint64_t mbps = 0;
    std::string cc;
    std::string recovery;
    std::string tcpUs;
    std::string udpKbps;
    std::string startsUs;
    uint32_t buffer = 0;
    uint32_t mark = 0;
    uint64_t fromMs = 0;
    uint64_t untilMs = 0;
    CommandLine cmd(__FILE__);
    cmd.AddValue("mbps", "rate between the switches", mbps);
    cmd.AddValue("cc", "reno, cubic or dctcp", cc);
    cmd.AddValue("recovery", "prr, or classic: at once to what is wanted", recovery);
    cmd.AddValue("tcp_us", "round trips of TCP flows, without time on the wire", tcpUs);
    cmd.AddValue("udp_kbps", "rates on the wire of UDP flows", udpKbps);
    cmd.AddValue("starts_us", "of each flow, TCP's first", startsUs);
    cmd.AddValue("buffer", "packets between the switches, the one on the wire included", buffer);
    cmd.AddValue("mark", "a packet that finds so many in the queue disc is marked; 0: none", mark);
    cmd.AddValue("from_ms", "begin of what is counted", fromMs);
    cmd.AddValue("until_ms", "end of it", untilMs);
    cmd.Parse(argc, argv);

    const std::vector<uint64_t> trips = truth::Numbers(tcpUs);
    const std::vector<uint64_t> rates = truth::Numbers(udpKbps);
    const std::vector<uint64_t> starts = truth::Numbers(startsUs);
    const bool known = cc == "reno" || cc == "cubic" || cc == "dctcp";
    // One packet in the queue disc is never marked by RED.
    const bool bounds = mbps > 0 && buffer > truth::kBelow && mark != 1 && fromMs < untilMs;
    if (!known || !bounds || (recovery != "prr" && recovery != "classic") ||
        starts.size() != trips.size() + rates.size())
    {
        std::cerr << "ns3: the command line is not that of a case; see --help" << std::endl;
        return 2;
    }
    truth::SetDefaults(cc, recovery, mark);

    const auto flows = static_cast<uint32_t>(starts.size());
    NodeContainer switches;
    NodeContainer senders;
    NodeContainer receivers;
    switches.Create(2);
    senders.Create(flows);
    receivers.Create(flows);
    InternetStackHelper stack;
    stack.Install(switches);
    stack.Install(senders);
    stack.Install(receivers);

    const uint64_t bps = mbps * 1000000;
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    NetDeviceContainer trunk =
        truth::Connect(switches.Get(0), switches.Get(1), bps, truth::kMiddleUs * 1000);
    Ptr<QueueDisc> middle = truth::InstallDisc(trunk.Get(0), buffer - truth::kBelow, mark > 0);
    truth::InstallDisc(trunk.Get(1), truth::kRoom, false);
    addresses.Assign(trunk);

    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t flow = 0; flow < flows; flow++)
    {
        const bool tcp = flow < trips.size();
        const uint64_t trip = tcp ? trips[flow] : truth::kUdpTripUs;
        const uint64_t near = trip * 1000 / 2 - (truth::kMiddleUs + truth::kRightUs) * 1000;
        NetDeviceContainer left =
            truth::Connect(senders.Get(flow), switches.Get(0), bps * truth::kAccess, near);
        NetDeviceContainer right = truth::Connect(switches.Get(1),
                                                  receivers.Get(flow),
                                                  bps * truth::kAccess,
                                                  truth::kRightUs * 1000);
        for (uint32_t end = 0; end < 2; end++)
        {
            truth::InstallDisc(left.Get(end), truth::kRoom, false);
            truth::InstallDisc(right.Get(end), truth::kRoom, false);
        }
        addresses.NewNetwork();
        addresses.Assign(left);
        addresses.NewNetwork();
        Ipv4InterfaceContainer ends = addresses.Assign(right);

        const std::string factory = tcp ? "ns3::TcpSocketFactory" : "ns3::UdpSocketFactory";
        PacketSinkHelper sink(factory, InetSocketAddress(Ipv4Address::GetAny(), truth::kPort));
        ApplicationContainer listens = sink.Install(receivers.Get(flow));
        listens.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(listens.Get(0)));
        const InetSocketAddress to(ends.GetAddress(1), truth::kPort);
        ApplicationContainer sends;
        if (tcp)
        {
            BulkSendHelper source(factory, to);
            source.SetAttribute("MaxBytes", UintegerValue(0));
            source.SetAttribute("SendSize", UintegerValue(truth::kSegment));
            sends = source.Install(senders.Get(flow));
        }
        else
        {
            OnOffHelper source(factory, to);
            const uint64_t wire = rates[flow - trips.size()] * 1000;
            const DataRate payload(wire * truth::kDatagram / truth::kWire);
            source.SetConstantRate(payload, truth::kDatagram);
            sends = source.Install(senders.Get(flow));
        }
        sends.Start(MicroSeconds(starts[flow]));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Simulator::Stop(MilliSeconds(fromMs));
    Simulator::Run();
    const truth::Counts before = truth::Count(sinks, middle);
    Simulator::Stop(MilliSeconds(untilMs - fromMs));
    Simulator::Run();
    const truth::Counts after = truth::Count(sinks, middle);
    for (uint32_t flow = 0; flow < flows; flow++)
    {
        std::cout << "flow " << flow << " " << after.octets[flow] - before.octets[flow] << "\n";
    }
    std::cout << "drops " << after.drops - before.drops << "\n";
    std::cout << "marks " << after.marks - before.marks << std::endl;
    Simulator::Destroy();
    return 0;
}
