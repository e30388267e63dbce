package playground

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
)

// picture returns a small PNG.
func picture() ([]byte, error) {
	const size = 64
	img := image.NewRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			img.Set(x, y, color.RGBA{R: uint8(4 * x), G: 0x7a, B: uint8(4 * y), A: 0xff})
		}
	}
	var out bytes.Buffer
	err := png.Encode(&out, img)
	return out.Bytes(), err
}

// tone returns a quarter of a second of the pitch A as WAV.
func tone() []byte {
	const rate, length = 8000, 2000 // of one byte each
	out := append(make([]byte, 0, 44+length), "RIFF"...)
	out = binary.LittleEndian.AppendUint32(out, 36+length)
	out = append(out, "WAVEfmt "...)
	out = binary.LittleEndian.AppendUint32(out, 16)   // bytes of the format
	out = binary.LittleEndian.AppendUint16(out, 1)    // PCM
	out = binary.LittleEndian.AppendUint16(out, 1)    // channel
	out = binary.LittleEndian.AppendUint32(out, rate) // samples a second
	out = binary.LittleEndian.AppendUint32(out, rate) // bytes a second
	out = binary.LittleEndian.AppendUint16(out, 1)    // bytes a sample
	out = binary.LittleEndian.AppendUint16(out, 8)    // bits a sample
	out = append(out, "data"...)
	out = binary.LittleEndian.AppendUint32(out, length)
	for i := range length {
		out = append(out, uint8(128+100*math.Sin(2*math.Pi*440*float64(i)/rate)))
	}
	return out
}

// document returns a PDF of one page. The text has no parentheses.
func document(text string) []byte {
	page := "BT /F 18 Tf 40 90 Td (" + text + ") Tj ET"
	objects := []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 320 180]/Contents 4 0 " +
			"R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
		fmt.Sprintf("<</Length %d>>stream\n%s\nendstream", len(page), page),
	}
	out := []byte("%PDF-1.4\n")
	offsets := make([]int, len(objects))
	for i, o := range objects {
		offsets[i] = len(out)
		out = fmt.Appendf(out, "%d 0 obj%s\nendobj\n", i+1, o)
	}
	table := len(out)
	out = fmt.Appendf(out, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, at := range offsets {
		out = fmt.Appendf(out, "%010d 00000 n \n", at)
	}
	return fmt.Appendf(out, "trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n",
		len(objects)+1, table)
}
