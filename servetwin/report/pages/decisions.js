const rows=[...document.querySelectorAll('#decided tr[data-kind]')],text=document.getElementById('with-text'),
kind=document.getElementById('of-kind'),left=document.getElementById('shown');
const show=()=>{const words=text.value.toLowerCase().split(/\s+/).filter(Boolean);let many=0;
for(const row of rows){const told=row.textContent.toLowerCase();
row.hidden=!((!kind.value||row.dataset.kind===kind.value)&&words.every(one=>told.includes(one)));many+=!row.hidden}
left.textContent=many.toLocaleString('en')+' shown'};
text.addEventListener('input',show);kind.addEventListener('change',show);show();
