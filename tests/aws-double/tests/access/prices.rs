//! The price list, as the operator asks for it.

use super::*;

async fn products(bed: &Bed, tenancy: &str, family: &str, size: usize) -> (usize, Vec<Value>) {
    let filters: Vec<Value> = [
        ("regionCode", REGION),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ]
    .map(|(field, value)| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value }))
    .to_vec();
    let (mut products, mut n_pages, mut token) = (Vec::new(), 0, Value::Null);
    loop {
        let mut body =
            json!({ "ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": size });
        if !token.is_null() {
            body["NextToken"] = token;
        }
        let answer = bed
            .admin
            .json("pricing", "AWSPriceListService.GetProducts", body)
            .await
            .expect("products");
        let page = answer["PriceList"].as_array().expect("a list");
        assert!(page.len() <= size);
        products.extend(page.iter().map(|text| {
            serde_json::from_str::<Value>(text.as_str().expect("text")).expect("JSON in JSON")
        }));
        n_pages += 1;
        token = answer["NextToken"].clone();
        if token.is_null() {
            return (n_pages, products);
        }
    }
}

#[test]
fn on_demand_prices_come_in_pages_one_per_type() {
    on_the_gateway(async |bed| {
        let (n_pages, products) = products(&bed, "Shared", "Compute Instance", 100).await;
        assert!(n_pages > 5, "{n_pages}");
        let m5 = products
            .iter()
            .filter(|product| product["product"]["attributes"]["instanceType"] == "m5.large")
            .collect::<Vec<_>>();
        assert_eq!(m5.len(), 1);
        let term = m5[0]["terms"]["OnDemand"]
            .as_object()
            .and_then(|terms| terms.values().next())
            .expect("a term");
        let dimension = term["priceDimensions"]
            .as_object()
            .and_then(|dimensions| dimensions.values().next())
            .expect("a price");
        let price: f64 =
            dimension["pricePerUnit"]["USD"].as_str().expect("a price").parse().expect("a number");
        let m5_type = bed.gateway.state().catalog().get("m5.large").expect("a type");
        let table = bed
            .gateway
            .state()
            .prices()
            .on_demand(m5_type)
            .to_string()
            .parse::<f64>()
            .expect("a number");
        assert!((price - table).abs() < 1e-9 && price > 0.0, "{price} {table}");
        assert!(
            products
                .iter()
                .all(|product| product["product"]["productFamily"] == "Compute Instance")
        );
    });
}

#[test]
fn bare_metal_is_a_family_of_its_own() {
    on_the_gateway(async |bed| {
        let (_, products) = products(&bed, "Dedicated", "Compute Instance (bare metal)", 50).await;
        assert!(!products.is_empty());
        for product in products {
            assert!(
                product["product"]["attributes"]["instanceType"]
                    .as_str()
                    .expect("a type")
                    .contains("metal"),
                "{product}"
            );
        }
    });
}

#[test]
fn what_no_product_has_matches_nothing() {
    on_the_gateway(async |bed| {
        let filter = |field: &str, value: &str| json!({ "ServiceCode": "AmazonEC2", "Filters": [{ "Type": "TERM_MATCH", "Field": field, "Value": value }] });
        for (field, value) in
            [("operatingSystem", "Windows"), ("regionCode", "us-east-1"), ("unheardOf", "x")]
        {
            let answer = bed
                .admin
                .json("pricing", "AWSPriceListService.GetProducts", filter(field, value))
                .await
                .expect("an answer");
            assert_eq!(answer["PriceList"], json!([]), "{field}");
        }
        let bad = bed.admin.json("pricing", "AWSPriceListService.GetProducts", json!({})).await;
        assert_eq!(refused(bad).0, "InvalidParameterException");
    });
}
