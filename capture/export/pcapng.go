package export

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/farcall-dev/farcall/capture"
)

// The blocks of pcapng (draft-ietf-opsawg-pcapng) and the tags of LINKTYPE_WIRESHARK_UPPER_PDU that
// are written.
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6

	linkUpperPDU = 252

	tagEnd       = 0
	tagDissector = 12
	tagIPv4From  = 20
	tagIPv4To    = 21
	tagPortType  = 24
	tagPortFrom  = 25
	tagPortTo    = 26
	tagProtocol  = 33
	tagDirection = 35
	tagInfo      = 36

	portTCP  = 2
	maxInfo  = 200
	portSelf = 1 << 14 // the port of the client of connection 0: the capture does not have it
)

// pcapng writes each frame as a packet. Wireshark dissects it as JSON.
type pcapng struct {
	out   *bytes.Buffer
	conns conns
	buf   []byte
	begun bool
}

// begin writes the section and its one interface, with times in nanoseconds.
func (p *pcapng) begin() {
	if p.begun {
		return
	}
	p.begun = true
	section := binary.LittleEndian.AppendUint32(nil, 0x1A2B3C4D)
	section = append(section, 1, 0, 0, 0)                        // the version
	section = binary.LittleEndian.AppendUint64(section, 1<<64-1) // of unknown length
	p.block(blockSection, section)
	link := binary.LittleEndian.AppendUint16(nil, linkUpperPDU)
	link = append(link, 0, 0, 0, 0, 0, 0) // reserved; no limit of the size
	link = append(link, 9, 0, 1, 0, 9, 0, 0, 0)
	link = append(link, 0, 0, 0, 0)
	p.block(blockInterface, link)
}

// block writes a block, padded to 32 bits.
func (p *pcapng) block(kind uint32, body []byte) {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	size := uint32(len(body) + 12)
	head := binary.LittleEndian.AppendUint32(nil, kind)
	p.out.Write(binary.LittleEndian.AppendUint32(head, size))
	p.out.Write(body)
	p.out.Write(binary.LittleEndian.AppendUint32(nil, size))
}

func (p *pcapng) record(rec *capture.Record) { p.conns.take(rec) }

func (p *pcapng) frame(rec *capture.Record, data []byte) {
	p.begin()
	pdu := p.tags(p.buf[:0], rec)
	tags := len(pdu)
	pdu = append(pdu, data...)
	size := max(rec.Size, len(data))
	t := uint64(rec.Time)
	body := binary.LittleEndian.AppendUint32(nil, 0)
	body = binary.LittleEndian.AppendUint32(body, uint32(t>>32))
	body = binary.LittleEndian.AppendUint32(body, uint32(t))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(pdu)))
	body = binary.LittleEndian.AppendUint32(body, uint32(tags+size))
	p.buf = pdu
	p.block(blockPacket, append(body, pdu...))
}

func (p *pcapng) end() { p.begin() }

// tags appends what Wireshark shows of a frame, in network order.
func (p *pcapng) tags(dst []byte, rec *capture.Record) []byte {
	conn := p.conns.of(rec.Conn)
	client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		uint16(portSelf+rec.Conn%portSelf))
	server, err := netip.ParseAddrPort(conn.Peer)
	if err != nil || server.Addr().Is4() != client.Addr().Is4() {
		server = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 2}), 0)
	}
	from, to, direction := client, server, uint32(0)
	if rec.Dir == "down" {
		from, to, direction = server, client, 1
	}
	dst = tag(dst, tagDissector, []byte("json"))
	dst = tag(dst, tagIPv4From, from.Addr().AsSlice())
	dst = tag(dst, tagIPv4To, to.Addr().AsSlice())
	dst = tag(dst, tagPortType, binary.BigEndian.AppendUint32(nil, portTCP))
	dst = tag(dst, tagPortFrom, binary.BigEndian.AppendUint32(nil, uint32(from.Port())))
	dst = tag(dst, tagPortTo, binary.BigEndian.AppendUint32(nil, uint32(to.Port())))
	dst = tag(dst, tagDirection, binary.BigEndian.AppendUint32(nil, direction))
	dst = tag(dst, tagProtocol, []byte("JSON-RPC"))
	info := strings.Join(strings.Fields(rec.Kind+" "+rec.Method+" "+rec.Name+" "+rec.ID), " ")
	info = strings.ToValidUTF8(info[:min(len(info), maxInfo)], "")
	dst = tag(dst, tagInfo, []byte(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '.'
		}
		return c
	}, info)))
	return tag(dst, tagEnd, nil)
}

func tag(dst []byte, kind uint16, value []byte) []byte {
	padded := (len(value) + 3) / 4 * 4
	dst = binary.BigEndian.AppendUint16(dst, kind)
	dst = binary.BigEndian.AppendUint16(dst, uint16(padded))
	dst = append(dst, value...)
	return append(dst, make([]byte, padded-len(value))...)
}
