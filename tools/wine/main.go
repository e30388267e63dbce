// Command wine writes the bcryptprimitives.dll that programs of Go need on Windows and that Wine
// has from version 9.0 on; Debian 12 has 8.0. Its only export, ProcessPrng, is forwarded to
// SystemFunction036 of advapi32 (RtlGenRandom), which fills a buffer with random bytes as well.
package main

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: wine FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1],
		library("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036"), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	fileAlign    = 0x200
	sectionAlign = 0x1000
)

// library returns a DLL for amd64 that exports one function, which is forwarded to that of another
// DLL.
func library(name, function, forward string) []byte {
	exports := exportTable(sectionAlign, name, function, forward)
	section := pe.SectionHeader32{
		Name: [8]uint8{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: uint32(len(exports)),
		VirtualAddress: sectionAlign,
		SizeOfRawData:  fileAlign, PointerToRawData: fileAlign,
		Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
	}
	header := pe.OptionalHeader64{
		Magic: 0x20b, SizeOfInitializedData: fileAlign, BaseOfCode: sectionAlign, ImageBase: 0x180000000,
		SectionAlignment: sectionAlign, FileAlignment: fileAlign, MajorOperatingSystemVersion: 6,
		MajorSubsystemVersion: 6,
		SizeOfImage:           2 * sectionAlign, SizeOfHeaders: fileAlign,
		Subsystem:          pe.IMAGE_SUBSYSTEM_WINDOWS_CUI,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT, NumberOfRvaAndSizes: 16,
	}
	header.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{
		VirtualAddress: sectionAlign, Size: uint32(len(exports)),
	}
	file := pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1,
		SizeOfOptionalHeader: uint16(binary.Size(header)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE |
			pe.IMAGE_FILE_DLL,
	}
	dos := make([]byte, 64)
	copy(dos, "MZ")
	dos[60] = byte(len(dos)) // where the PE header begins
	image := encode(dos, []byte("PE\x00\x00"), file, header, section)
	return pad(append(pad(image), exports...))
}

// exportTable returns the section that begins at an address in memory.
func exportTable(at uint32, name, function, forward string) []byte {
	const tables = 40 // after the directory
	strings := at + tables + 4 + 4 + 2
	names := [...]uint32{
		strings, strings + uint32(len(name)) + 1,
		strings + uint32(len(name)+len(function)) + 2,
	}
	return encode(struct {
		Characteristics, Time, Version, Name, Base, Functions, Names uint32
		FunctionTable, NameTable, OrdinalTable                       uint32
	}{
		Name: names[0], Base: 1, Functions: 1, Names: 1, FunctionTable: at + tables,
		NameTable: at + tables + 4, OrdinalTable: at + tables + 8,
	},
		names[2], names[1], uint16(0), []byte(name+"\x00"+function+"\x00"+forward+"\x00"))
}

func encode(parts ...any) []byte {
	var b bytes.Buffer
	for _, part := range parts {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic("a part without a fixed size: " + err.Error())
		}
	}
	return b.Bytes()
}

func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&(fileAlign-1))...) }
